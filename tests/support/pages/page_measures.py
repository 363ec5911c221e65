"""Measurements of a page in a browser, by scripts that it evaluates."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from playwright.sync_api import Page

#: Axe-core, which finds accessibility problems.
AXE: Final = Path(__file__).parents[2] / "pages" / "vendor" / "axe.js"

#: The width by which a page exceeds the window.
WIDER: Final = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
BROKEN: Final = """() => {
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    if (/^(SCRIPT|STYLE|NOSCRIPT)$/.test(node.parentElement.tagName)) continue;
    for (const word of node.data.matchAll(/[\\p{L}\\p{N}_]+/gu)) {
      const range = document.createRange();
      range.setStart(node, word.index);
      range.setEnd(node, word.index + word[0].length);
      const parts = [...range.getClientRects()].filter((part) => part.width > 0);
      const tops = new Set(parts.map((part) => Math.round(part.top)));
      if (tops.size > 1) found.push(word[0].slice(0, 40));
    }
  }
  return found;
}"""

#: The size by which a fixed element, such as a dialog, exceeds the window or overflows itself.
STANDS_OUT: Final = """(one) => {
  const { left, right } = one.getBoundingClientRect();
  return Math.max(-left, right - innerWidth, one.scrollWidth - one.clientWidth);
}"""


def faults_of(page: Page) -> list[tuple[str, str]]:
    """Return the problems that axe finds: the rule, and an element."""
    page.evaluate(AXE.read_text())
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [(one["id"], one["nodes"][0]["html"][:200]) for one in found["violations"]]
