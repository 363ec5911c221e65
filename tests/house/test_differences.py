"""Every expected difference from RabbitMQ has a reason, and every reason has a difference."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from differential import expected
from differential.stage import Host

ROOT: Final = Path(__file__).parents[2]

#: The versions that `make differential` runs, and their releases.
RUN: Final = {"3.10", "3.10.8", "4.3", "4.3.6"}
CLAIM: Final = re.compile(r"\b[Aa]s (?:in |with |for )?RabbitMQ(?:'s)? (\d+(?:\.\d+)*)")


def test_the_page_explains_every_expected_difference() -> None:
    assert set(expected.explained()) == set(expected.read())


def test_the_page_says_which_releases_do_as_leveret_does() -> None:
    """Releases listed as the same have no difference, and all others have one."""
    recorded = {
        (id_, release)
        for id_, places in expected.read().items()
        for place in places
        for release in place.releases
    }
    said = {
        (id_, release)
        for id_, columns in expected.explained().items()
        for release, column in zip(expected.RELEASES, columns, strict=True)
        if column != expected.SAME
    }
    assert said == recorded


@pytest.mark.parametrize(
    ("version", "release", "is_recorded"),
    [
        ("3.10.8", "3.10", True),
        ("4.3.6", "4.3", True),
        ("4.3.7", "4.3", False),
        ("4.4.0", "4.3", False),
        ("4.0.5", "4.3", False),
    ],
)
def test_other_versions_are_compared_with_the_last_release_and_fail_nothing(
    version: str, release: str, is_recorded: bool
) -> None:
    host = Host("rabbitmq", "", lambda *_: (404, None), version)
    assert (expected.release(host), expected.is_recorded(host)) == (release, is_recorded)


def test_only_versions_that_are_run_are_named_as_examples() -> None:
    """Only a RabbitMQ that the scripts run on can be cited as having the same behaviour."""
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.md")]
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    assert len(pages) > 30
    found = [
        f"{path.relative_to(ROOT)}: {claim[0]}"
        for path in (*pages, *sources)
        for claim in CLAIM.finditer(path.read_text())
        if claim[1] not in RUN
    ]
    assert found == []
