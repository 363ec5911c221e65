"""The jobs' pages as text: nothing in a message can become markup, and nothing is loaded."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.pages.assets import FILES, hash_source
from leveret.pipelines.archive.page import archive_page
from leveret.pipelines.deadletter.page import deadletter_page
from leveret.pipelines.lifecycle.page import lifecycle_page
from leveret.pipelines.pages.bars import BANDS_MAX
from leveret.pipelines.pages.document import joined, json_text
from leveret.pipelines.pages.origin import COMMAND_CHARACTERS, PageOrigin, command_line
from leveret.pipelines.pages.rows import ROWS_SHOWN, TEXT_CHARACTERS, table
from leveret.pipelines.replay.page import replay_page
from leveret.pipelines.report.page import report_page
from leveret.pipelines.route.page import route_page
from support.pages.job_samples import (
    HOSTILE,
    archive_sample,
    deadletter_sample,
    lifecycle_sample,
    replay_sample,
    report_sample,
    route_sample,
)


class Reader(HTMLParser):
    """Gathers what a browser would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append((self.elements[-1][0] if self.elements else "", data))

    def of(self, tag: str) -> list[str]:
        """Return the texts in elements of a name."""
        return [text for within, text in self.texts if within == tag and text.strip()]


@given(st.text(max_size=40))
def test_any_key_stays_data(key: str) -> None:
    sample = report_sample(5, key)
    shown = Reader(report_page(sample))
    harmless = Reader(report_page(report_sample(5, "k")))
    assert [tag for tag, _ in shown.elements] == [tag for tag, _ in harmless.elements]
    data = json.loads(shown.of("script")[0])
    assert data["keys"]["rows"][3][1] == key


@pytest.mark.parametrize(
    "page",
    [
        report_page(report_sample()),
        route_page(route_sample()),
        deadletter_page(deadletter_sample()),
        lifecycle_page(lifecycle_sample(), "10 minutes"),
        archive_page(archive_sample()),
        replay_page(replay_sample(), "orders", "queue again"),
    ],
    ids=["report", "route", "deadletter", "lifecycle", "archive", "replay"],
)
def test_the_policy_allows_the_script_and_the_style_by_their_hashes_only(page: str) -> None:
    found = Reader(page)
    (policy,) = (
        attributes["content"] or ""
        for tag, attributes in found.elements
        if tag == "meta" and attributes.get("http-equiv") == "Content-Security-Policy"
    )
    data, script = found.of("script")
    (style,) = found.of("style")
    assert policy.split("; ") == [
        "default-src 'none'",
        f"script-src {hash_source(script)}",
        f"style-src {hash_source(style)}",
        "base-uri 'none'",
        "form-action 'none'",
    ]
    assert {tag for tag, _ in found.elements} == {
        "html", "head", "meta", "title", "style", "body", "div", "noscript", "p", "script",
    }  # fmt: skip
    assert not [name for _, attributes in found.elements for name in attributes if name == "src"]
    assert "<" not in data
    assert HOSTILE not in page


def test_a_title_with_a_name_of_a_user_is_escaped() -> None:
    found = Reader(report_page(replace(report_sample(1), source="</title><b>\x1b")))
    assert "b" not in {tag for tag, _ in found.elements}
    assert found.of("title") == ["Traffic of </title><b>\ufffd"]


def test_long_tables_are_cut_and_their_length_is_said() -> None:
    rows = [("x" * (TEXT_CHARACTERS + 5), number) for number in range(ROWS_SHOWN + 5)]
    made = table("name number", rows, len(rows))
    assert made["fields"] == ["name", "number"]
    assert made["total"] == ROWS_SHOWN + 5
    kept = made["rows"]
    assert isinstance(kept, list)
    assert len(kept) == ROWS_SHOWN
    assert kept[0] == ["x" * TEXT_CHARACTERS + "…", 0]


def test_the_rows_of_a_report_are_those_with_the_most_messages() -> None:
    sample = report_sample()
    data = json.loads(Reader(report_page(sample)).of("script")[0])
    shown = data["windows"]
    most = sorted((row.messages for row in sample.rows), reverse=True)[:ROWS_SHOWN]
    assert sorted((row[2] for row in shown["rows"]), reverse=True) == most
    assert [row[8] for row in shown["rows"]] == sorted(row[8] for row in shown["rows"])
    assert shown["total"] == sample.rows_total


def test_there_is_a_colour_for_each_band_and_the_rest() -> None:
    style = (FILES / "common/style.css").read_text(encoding="utf-8")
    colours = {int(number) for number in re.findall(r"--plot-(\d+): #", style)}
    assert colours == set(range(1, BANDS_MAX + 2))


def test_a_command_can_be_copied_and_has_no_password() -> None:
    command = command_line(
        "route", "my plan.json", stream="orders", sizes=True, against=None, error_header=["a", "b"],
        uri="amqp://me:p%2Fw@host:5672/%2F",
    )  # fmt: skip
    assert command == (
        "leveret pipeline route 'my plan.json' --stream orders --sizes --error-header a "
        "--error-header b --uri amqp://host:5672/%2F"
    )


def test_a_long_command_is_cut() -> None:
    shown = PageOrigin("s", "x" * (COMMAND_CHARACTERS + 1)).described()["command"]
    assert shown == "x" * COMMAND_CHARACTERS


@pytest.mark.parametrize("job", sorted(path.stem for path in (FILES / "jobs").glob("*.js")))
def test_a_script_is_joined_without_imports(job: str) -> None:
    script = joined(f"jobs/{job}.js")
    assert not re.search(r"^(import|export) ", script, re.MULTILINE)
    assert not re.search("</script|<!--", script)


@given(st.recursive(st.text() | st.integers() | st.none(), st.lists, max_leaves=8))
def test_data_is_what_the_browser_reads(value: object) -> None:
    text = json_text(value)
    assert json.loads(text) == value
    assert text.isascii()
    assert not set("<>") & set(text)
