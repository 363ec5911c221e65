"""Plots show each value that there is: one sample alone, and a line beneath an equal one."""

from __future__ import annotations

from typing import Any, Final

import pytest
from playwright.sync_api import Page

#: Draw a plot of the page's own on a page without a view, and count the pixels of each series.
COUNT: Final = """async ([series, data]) => {
  const at = (name) => new URL(`ui/${name}`, document.baseURI).href;
  const { html, render } = await import(at("vendor/htm-preact.js"));
  const { LinePlot, plotColour } = await import(at("common/plot.js"));
  const place = document.body.appendChild(document.createElement("div"));
  render(html`<${LinePlot} title="Drawn" series=${series} data=${data} />`, place);
  await new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
  const canvas = place.querySelector("canvas");
  const { data: dots } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const counts = series.map((one, number) => {
    const hex = plotColour(number);
    const wanted = [1, 3, 5].map((from) => parseInt(hex.slice(from, from + 2), 16));
    let count = 0;
    for (let dot = 0; dot < dots.length; dot += 4) {
      const near = wanted.every((value, part) => Math.abs(dots[dot + part] - value) < 12);
      count += near && dots[dot + 3] > 200 ? 1 : 0;
    }
    return count;
  });
  return { counts, nothing: place.querySelector(".nothing") !== null };
}"""

NOW: Final = 1_700_000_000


@pytest.fixture
def empty(page: Page) -> Page:
    """A page that may load what the broker serves."""
    page.goto("#/overview")
    page.locator("main h1").wait_for()
    return page


def drawn(page: Page, series: list[dict[str, Any]], data: list[list[float | None]]) -> Any:
    return page.evaluate(COUNT, [series, data])


def test_one_sample_alone_is_a_point(empty: Page) -> None:
    one = {"label": "One"}
    alone = drawn(empty, [one], [[NOW], [5]])
    assert alone["counts"][0] > 10
    assert alone["nothing"] is False
    # So is one between two that are missing.
    between = drawn(
        empty, [one, {"label": "Other"}], [[NOW, NOW + 5, NOW + 10], [None, 3, None], [1, 2, 3]]
    )
    assert between["counts"][0] > 10
    assert drawn(empty, [one], [[NOW, NOW + 5], [None, None]]) == {"counts": [0], "nothing": True}


@pytest.mark.pages_more
def test_a_line_beneath_an_equal_one_is_seen(empty: Page) -> None:
    data: list[list[float | None]] = [[NOW, NOW + 30], [5, 5], [5, 5]]
    hidden = drawn(empty, [{"label": "Under"}, {"label": "Over"}], data)
    assert hidden["counts"][0] < 20
    seen = drawn(empty, [{"label": "Under"}, {"label": "Over", "dashed": True}], data)
    assert min(seen["counts"]) > 100


#: Draw bars; return the share of the plot's width that they cover, and the time told at each place.
BARS: Final = """async ([starts, step, places]) => {
  const at = (name) => new URL(`ui/${name}`, document.baseURI).href;
  const { html, render } = await import(at("vendor/htm-preact.js"));
  const { BarPlot, plotColour } = await import(at("common/plot.js"));
  const place = document.body.appendChild(document.createElement("div"));
  const [series, data] = [[{ label: "One" }], [starts, starts.map(() => 5)]];
  render(html`<${BarPlot} title="Drawn" series=${series} data=${data} step=${step} />`, place);
  const frame = () => new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)));
  await frame();
  const canvas = place.querySelector("canvas");
  const { data: dots } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const hex = plotColour(0);
  const wanted = [1, 3, 5].map((from) => parseInt(hex.slice(from, from + 2), 16));
  let covered = 0;
  for (let x = 0; x < canvas.width; x += 1) {
    const isBar = (dot) => wanted.every((value, part) => dots[dot + part] === value);
    const column = Array.from({ length: canvas.height }, (_, y) => 4 * (y * canvas.width + x));
    covered += column.some(isBar) ? 1 : 0;
  }
  const over = place.querySelector(".u-over");
  const times = [];
  for (const share of places) {
    const box = over.getBoundingClientRect();
    const [clientX, clientY] = [box.left + share * box.width, box.top + 20];
    over.dispatchEvent(new MouseEvent("mousemove", { clientX, clientY, bubbles: true }));
    await frame();
    times.push(new Date(place.querySelector(".u-value").textContent).getTime() / 1000);
  }
  return { share: covered / (over.clientWidth * devicePixelRatio), times };
}"""


def test_a_bar_is_as_wide_as_its_window(empty: Page) -> None:
    """However far the next one is; and the pointer tells of the bar that it is on."""
    hour = 3600
    start = NOW - NOW % hour
    starts = [start, start + hour, start + 9 * hour]
    few = empty.evaluate(BARS, [starts, hour, [0.15, 0.24, 0.9]])
    # A plot has room for twelve windows at least.
    assert few["share"] == pytest.approx(3 / 12, abs=0.02)
    assert few["times"] == starts
    many = [start + hour * number for number in range(0, 40, 2)]
    assert empty.evaluate(BARS, [many, hour, []])["share"] == pytest.approx(20 / 39, abs=0.05)


#: What stands for some figures, by the page's own words.
WORDS: Final = """async () => {
  const place = new URL("ui/common/format.js", document.baseURI).href;
  const { counted, NOTHING, rate, rateKnown } = await import(place);
  const shown = (known) => rate(rateKnown({ rates_known: known }, { rate: 0 }));
  return [shown(false) === NOTHING, shown(true), counted(1, "queue"), counted(2000, "queue")];
}"""


def test_a_rate_that_is_not_known_is_a_dash(empty: Page) -> None:
    assert empty.evaluate(WORDS) == [True, "0/s", "1 queue", "2,000 queues"]
