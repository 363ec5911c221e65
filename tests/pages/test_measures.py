"""The measures of pages find what they are for: broken words, overflow, and what hinders people."""

from __future__ import annotations

from typing import Any

import pytest

from support.pages.page_measures import BROKEN, STANDS_OUT, WIDER, faults_of

#: A page at a phone's width with a text in a box, whose style a test gives.
PAGE = """<!doctype html><html lang="en"><title>Measured</title>
<meta name="viewport" content="width=device-width"><style>
body {{ font: 16px sans-serif; margin: 0 }} p {{ width: 6em; {style} }}</style>
<main><h1>Measured</h1><p>{text}</p></main></html>"""

WORDS = "some words of usual length, in several lines"
LONG = "unbelievablylongword"


@pytest.fixture(scope="module")
def base() -> str:
    """An address where nothing is."""
    return "http://127.0.0.1:9/"


def measured(visitor: Any, text: str, style: str = "") -> tuple[int, list[str]]:
    """Return by how much a page is wider than its window, and its broken words."""
    page = visitor.open((390, 844), None)
    page.set_content(PAGE.format(text=text, style=style))
    return page.evaluate(WIDER), page.evaluate(BROKEN)


def test_words_that_are_whole_are_no_fault(visitor: Any) -> None:
    assert measured(visitor, WORDS) == (0, [])
    # It stands out of its box, but not of the window.
    assert measured(visitor, LONG) == (0, [])


@pytest.mark.parametrize(
    "style", ["overflow-wrap: anywhere", "word-break: break-all", "width: 2em; hyphens: manual"]
)
def test_a_broken_word_is_found(visitor: Any, style: str) -> None:
    word = LONG if "hyphens" not in style else "unbeliev\u00adably"
    assert measured(visitor, f"{word} and more", style)[1] != []


def test_an_excha_nge_in_a_narrow_cell_is_found(visitor: Any) -> None:
    cell = "<span style='display: inline-block; width: 3em; word-wrap: break-word'>exchange</span>"
    assert measured(visitor, cell)[1] == ["exchange"]


def test_what_is_wider_than_the_window_is_found(visitor: Any) -> None:
    assert measured(visitor, "x" * 200)[0] > 0
    assert measured(visitor, "short", "width: 500px")[0] == 500 - 390


def test_what_hinders_people_is_found(visitor: Any) -> None:
    page = visitor.open((390, 844), None)
    page.set_content(PAGE.format(text="readable", style=""))
    assert faults_of(page) == []
    page.set_content(PAGE.format(text="<input>", style="color: #eee; background: #fff"))
    assert [rule for rule, _ in faults_of(page)] == ["label"]
    page.set_content(PAGE.format(text="unreadable", style="color: #eee; background: #fff"))
    assert [rule for rule, _ in faults_of(page)] == ["color-contrast"]


def test_a_dialog_that_stands_out_of_the_window_is_found(visitor: Any) -> None:
    page = visitor.open((390, 844), None)
    for width, out in ((300, False), (430, True)):
        page.set_content(PAGE.format(text="", style=""))
        page.evaluate(f"""() => {{
          const dialog = document.createElement("dialog");
          dialog.style = "width: {width}px; max-width: none; padding: 0; border: 0";
          document.body.append(dialog);
          dialog.showModal();
        }}""")
        assert (page.locator("dialog").evaluate(STANDS_OUT) > 0) is out
