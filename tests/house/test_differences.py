"""Every difference from RabbitMQ that is expected has its reason, and every reason a difference."""

from __future__ import annotations

from differential import expected


def test_the_page_explains_every_expected_difference() -> None:
    assert set(expected.explained()) == set(expected.read())


def test_the_page_says_which_releases_do_as_leveret_does() -> None:
    """What is said to be the same has no difference, and nothing else has none."""
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
