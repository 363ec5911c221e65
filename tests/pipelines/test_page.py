"""The page of the report: nothing in a message can become markup, and nothing is loaded."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from leveret.pipelines.pages.markup import Markup, document, element
from leveret.pipelines.pages.parts import ROWS_SHOWN
from leveret.pipelines.pages.plots import BANDS_MAX, COLOURS, Bar, rounded_up
from leveret.pipelines.report.page import report_page
from leveret.pipelines.report.result import Report, Traffic

START = datetime(2026, 1, 2, 3, 4, tzinfo=UTC)
HOSTILE = """</td><script src="https://example.org/x.js"></script><img onerror='x'>&amp;\x00\x1b"""


class Reader(HTMLParser):
    """Gathers what a browser would see."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def make_report(key: str, rows: int = 3, bars: int = 3) -> Report:
    traffic = tuple(
        Traffic(START + timedelta(minutes=n), key, f"{key}{n % 9}", n + 1, 10 * n, n, 2 * n)
        for n in range(rows)
    )
    return Report(
        source=f"stream {key}",
        window_seconds=60,
        messages=sum(row.messages for row in traffic),
        bytes=123_456_789,
        rows=traffic,
        rows_total=rows + 1,
        keys=traffic[:9],
        keys_total=9,
        bars=tuple(
            Bar(START + timedelta(minutes=n // 2), n % min(rows, BANDS_MAX), n + 1)
            for n in range(bars)
        ),
        bar_seconds=60,
    )


@given(st.text(max_size=40))
def test_any_key_stays_text(key: str) -> None:
    harmless = Reader(report_page(make_report("k"))).elements
    shown = Reader(report_page(make_report(key)))
    assert [tag for tag, _ in shown.elements] == [tag for tag, _ in harmless]
    assert shown.open == []


def test_hostile_keys_are_shown_and_do_nothing() -> None:
    page = Reader(report_page(make_report(HOSTILE)))
    tags = {tag for tag, _ in page.elements}
    assert not tags & {"script", "img", "link", "iframe", "a", "base", "form"}
    names = {name for _, attributes in page.elements for name in attributes}
    assert not {name for name in names if name.startswith("on") or name in {"src", "href"}}
    assert any("<script src=" in text for text in page.text)
    assert "\x00" not in "".join(page.text)


def test_the_page_loads_nothing_and_says_so() -> None:
    page = report_page(make_report("k"))
    assert "http://" not in page
    assert "https://" not in page
    assert "default-src &#x27;none&#x27;" in page


def test_long_tables_are_cut_and_that_is_said() -> None:
    page = report_page(make_report("k", rows=ROWS_SHOWN + 5))
    assert page.count("<tr>") <= ROWS_SHOWN + 9 + 2
    assert f"The {ROWS_SHOWN:,} rows of {ROWS_SHOWN + 6:,}." in page


def test_there_is_a_colour_for_each_band_and_the_rest() -> None:
    assert len(COLOURS) == BANDS_MAX + 1


def test_only_markup_is_taken_as_it_is() -> None:
    inner = element("b", None, "<&>\"'")
    assert inner == "<b>&lt;&amp;&gt;&quot;&#x27;</b>"
    assert element("p", {"title": '"><x'}, inner, "<i>") == (
        f'<p title="&quot;&gt;&lt;x">{inner}&lt;i&gt;</p>'
    )
    assert Reader(document("<t>", "", Markup("<p></p>"))).open == []


@given(st.integers(1, 10**15))
def test_the_scale_of_the_plot_is_round_and_not_much_too_high(count: int) -> None:
    top = rounded_up(count)
    assert count <= top <= max(4, 2 * count)
    assert top % 4 == 0
    assert len(str(top // 4).rstrip("0")) <= 1
