"""The jobs' pages on paper: whole tables with a head on each sheet, dark on white, and no control.

What a browser prints is looked at in two ways: as it lays the page out for paper of the width of
upright A4, and as the text of the sheets, which `pdftotext` takes out of the PDF that it makes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from support.pages.job_views import EMPTY, PAGES, shown, some
from support.pages.page_measures import BROKEN, WIDER

#: The width of upright A4 within its margins, in pixels.
PAPER: Final = 703

#: What a reader can only press or fill in, and is printed nevertheless.
CONTROLS: Final = """() => [...document.querySelectorAll("button, select, input, .graph-says")]
  .filter((one) => one.getClientRects().length > 0 && getComputedStyle(one).visibility !== "hidden")
  .map((one) => one.outerHTML)"""

#: Elements with a ground that is darker than paper, but marks that tell something by their colour.
DARK: Final = """() => [...document.querySelectorAll("html, body, body *")].filter((one) => {
  const [red, green, blue, alpha = 1] = getComputedStyle(one).backgroundColor.match(/[\\d.]+/g)
    .map(Number);
  const marks = ".bar-part, .patch, .u-marker, .stage-share > span, .u-select, .u-cursor-pt";
  const bright = Math.min(red, green, blue) > 200;
  return alpha > 0 && !bright && !one.matches(marks);
}).map((one) => one.className)"""

#: What stands out of the box that it is in: tables, pictures, plots, stages, the command.
CUT: Final = """() => [...document.querySelectorAll(
  "#page, .table-box, .graph-box, .plot-place, .stage, .stage-row, .figure, .origin, .command")]
  .filter((one) => one.scrollWidth > one.clientWidth + 1 && one.clientWidth > 0)
  .map((one) => [one.className, one.ariaLabel, one.scrollWidth, one.clientWidth])"""


@pytest.fixture(scope="module")
def base() -> str:
    """An address where nothing is: a job's page comes from a file."""
    return "http://127.0.0.1:9/"


def on_paper(page: Page) -> None:
    """Lay a page out as for upright A4, by the choice of dark colours that its reader has made."""
    page.get_by_label("Colours").select_option("dark")
    page.set_viewport_size({"width": PAPER, "height": 1000})
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    page.emulate_media(media="print", color_scheme="dark")
    expect(page.locator(".table-box.long")).to_have_count(0)


def rows_of(page: Page) -> int:
    """Return how many rows the tables of a page have in all."""
    data = json.loads(page.locator("#data").text_content() or "")
    tables = {key: one for key, one in data.items() if isinstance(one, dict) and "rows" in one}
    counts = {key: len(one["rows"]) for key, one in tables.items()}
    # The last letters stand in a table of their own, one of each group.
    return sum(counts.values()) + (counts["groups"] if data["job"] == "deadletter" else 0)


@pytest.mark.parametrize("job", some(PAGES, "report"))
def test_each_page_fits_on_paper(visitor: Any, tmp_path: Path, job: str) -> None:
    page = shown(visitor, PAGES[job](), tmp_path, color_scheme="dark")
    on_paper(page)
    assert page.evaluate(WIDER) <= 0
    assert page.evaluate(CUT) == []
    assert page.evaluate(BROKEN) == []
    assert page.evaluate(CONTROLS) == []
    assert page.evaluate(DARK) == []
    expect(page.locator(".table tbody tr")).to_have_count(rows_of(page))
    # The names of columns are there, though one cannot sort by them on paper.
    for title in page.locator(".sorter").all():
        assert title.inner_text().strip()
    for wide in page.locator("figure.plot canvas, figure.graph, figure.bars").all():
        box = wide.bounding_box()
        assert box is not None
        assert box["width"] > PAPER * 0.9


@pytest.mark.parametrize("job", some(EMPTY, "report"))
def test_a_page_without_data_fits_on_paper(visitor: Any, tmp_path: Path, job: str) -> None:
    page = shown(visitor, EMPTY[job](), tmp_path)
    on_paper(page)
    assert page.evaluate(CUT) == []
    assert page.evaluate(CONTROLS) == []
    assert page.evaluate(DARK) == []


def test_a_name_of_usual_length_is_printed_whole(visitor: Any, tmp_path: Path) -> None:
    """A word is cut only where a table would not fit otherwise."""
    page = shown(visitor, PAGES["route"](), tmp_path)
    on_paper(page)
    cut = """() => [...document.querySelectorAll(".cell-text")]
      .filter((one) => one.scrollWidth > one.clientWidth + 1).map((one) => one.textContent)"""
    assert {text[:9] for text in page.evaluate(cut)} <= {"</script>", "work.regi"}
    assert all("www" in text for text in page.evaluate(cut))


@pytest.mark.parametrize("job", some(["lifecycle", "report"], "lifecycle"))
def test_after_printing_a_long_table_is_as_before(visitor: Any, tmp_path: Path, job: str) -> None:
    page = shown(visitor, PAGES[job](), tmp_path)
    widths = """() => [...document.querySelectorAll(".table-box:not(.long) th")]
      .map((one) => one.style.minWidth)"""
    before = page.evaluate(widths)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(page.locator(".table-box.long")).to_have_count(0)
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    expect(page.locator(".table-box.long")).to_have_count(1)
    assert page.evaluate(widths) == before


def sheets(page: Page, place: Path, height_mm: int = 297) -> list[str]:
    """Print a page to sheets that are as wide as A4; return the text of each."""
    if shutil.which("pdftotext") is None:
        assert not os.environ.get("LEVERET_TEST_EXPECT_CHROMIUM"), "missing: pdftotext"
        pytest.skip("pdftotext is missing; Debian has it: .ci/packages poppler-utils")
    file = place / "page.pdf"
    page.pdf(path=file, width="210mm", height=f"{height_mm}mm")
    done = subprocess.run(
        ["pdftotext", "-layout", str(file), "-"], check=True, capture_output=True, text=True
    )
    return done.stdout.split("\f")[:-1]


@pytest.mark.parametrize(
    ("job", "head", "row", "rows"),
    [
        ("lifecycle", r"Queue +Sequence +Exchange +Routing key", r" shop +.* delivered ", 900),
        pytest.param(
            "report",
            r"Window\S? +Exchange +Routing key",
            r"^ *2026-11-23 \d\d:\d\d:00 +shop ",
            2000,
            marks=pytest.mark.pages_more,
        ),
    ],
)
def test_each_sheet_of_a_table_has_its_head(
    visitor: Any, tmp_path: Path, job: str, head: str, row: str, rows: int
) -> None:
    page = shown(visitor, PAGES[job](), tmp_path, color_scheme="dark")
    texts = sheets(page, tmp_path)
    with_rows = [text for text in texts if re.search(row, text, re.MULTILINE)]
    assert len(with_rows) > 5
    for text in with_rows[1:]:
        assert re.search(head, text), text[:400]
    assert sum(len(re.findall(row, text, re.MULTILINE)) for text in texts) >= rows


@pytest.mark.parametrize("job", some(["archive", "route"], "archive"))
def test_a_heading_is_on_the_sheet_of_what_it_heads(visitor: Any, tmp_path: Path, job: str) -> None:
    page = shown(visitor, PAGES[job](), tmp_path)
    titles = [title.split("\n")[0] for title in page.locator("h2").all_inner_texts()]
    # Of sheets of several heights one ends at each place.
    for height in range(200, 304, 8):
        for text in sheets(page, tmp_path, height):
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            assert lines
            # Neither a heading alone nor its count or its columns end a sheet.
            assert not any(lines[-1].startswith(title) for title in titles), lines[-3:]
            assert not re.match(r"All [\d,]+\.$", lines[-1]), lines[-3:]
            assert not re.match(r"(Queue|Stream|Exchange|Batch) +[A-Z]", lines[-1]), lines[-3:]
