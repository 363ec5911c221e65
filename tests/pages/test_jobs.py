"""The jobs' pages in a browser: at both widths, in light and dark, with hostile names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Page, expect

from job_samples import (
    archive_sample,
    deadletter_sample,
    lifecycle_sample,
    replay_sample,
    report_sample,
    route_sample,
)
from leveret.pipelines.archive.page import archive_page
from leveret.pipelines.archive.result import ArchiveResult
from leveret.pipelines.deadletter.page import deadletter_page
from leveret.pipelines.deadletter.result import DeadLetters
from leveret.pipelines.lifecycle.page import lifecycle_page
from leveret.pipelines.lifecycle.result import Lifecycle
from leveret.pipelines.pages.origin import command_line
from leveret.pipelines.replay.page import replay_page
from leveret.pipelines.replay.sending import Sent
from leveret.pipelines.report.page import report_page
from leveret.pipelines.report.result import Report
from leveret.pipelines.route.page import route_page
from leveret.pipelines.route.result import Routes
from page_measures import BROKEN, WIDER, serious_faults

COMMAND: Final = command_line(
    "report", stream=f"orders {'long ' * 40}", uri="amqp://me:secret@localhost:5672/%2F"
)

PAGES: Final[dict[str, Callable[[], str]]] = {
    "report": lambda: report_page(report_sample(), COMMAND),
    "route": lambda: route_page(route_sample(), COMMAND),
    "deadletter": lambda: deadletter_page(deadletter_sample(), COMMAND),
    "lifecycle": lambda: lifecycle_page(lifecycle_sample(), "10 minutes", COMMAND),
    "archive": lambda: archive_page(archive_sample(), COMMAND),
    "replay": lambda: replay_page(replay_sample(), "orders", "queue again", COMMAND),
}

EMPTY: Final[dict[str, Callable[[], str]]] = {
    "report": lambda: report_page(Report("stream s", 60, 0, 0, (), 0, (), 0, (), 60)),
    "route": lambda: route_page(
        Routes("stream s", "plan.json", None, 0, 0, 0, (), (), (), 0, 0, (), 0, 0)
    ),
    "deadletter": lambda: deadletter_page(DeadLetters("stream s", 0, 0, 0, (), 0, (), (), 60)),
    "lifecycle": lambda: lifecycle_page(
        Lifecycle("stream s", 0, 0, 0, 0, (), 0, 0, (), 0, None, None), "1 minute"
    ),
    "archive": lambda: archive_page(ArchiveResult("/data", "orders", 0, 0, None, {})),
    "replay": lambda: replay_page(Sent("replay-1", 0, {}), "orders", "queue again"),
}

SIZES: Final = {"wide": (1280, 800), "narrow": (390, 844)}


@pytest.fixture(scope="module")
def base() -> str:
    """An address where nothing is: a job's page comes from a file."""
    return "http://127.0.0.1:9/"


def shown(visitor: Any, text: str, place: Path, size: str = "wide", **options: object) -> Page:
    """Open a page from a file; return it when it is drawn."""
    file = place / "page.html"
    file.write_text(text, encoding="utf-8")
    page: Page = visitor.open(SIZES[size], None, **options)
    page.goto(file.as_uri())
    page.locator("main .table").first.wait_for()
    return page


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("job", PAGES)
def test_no_word_is_broken_and_nothing_overflows(
    visitor: Any, tmp_path: Path, job: str, size: str
) -> None:
    page = shown(visitor, PAGES[job](), tmp_path, size, color_scheme="dark")
    assert page.evaluate(WIDER) <= 0
    assert page.evaluate(BROKEN) == []


@pytest.mark.pages_more
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("job", PAGES)
def test_everybody_can_use_each_page(visitor: Any, tmp_path: Path, job: str, scheme: str) -> None:
    """Axe, which looks for what hinders people, finds nothing that is serious."""
    # A page of a job runs no script that it does not name, so that axe must be let in.
    page = shown(visitor, PAGES[job](), tmp_path, color_scheme=scheme, bypass_csp=True)
    assert serious_faults(page) == []


@pytest.mark.parametrize("job", PAGES)
def test_a_hostile_name_is_text_and_the_password_is_not_there(
    visitor: Any, tmp_path: Path, job: str
) -> None:
    text = PAGES[job]()
    assert "secret" not in text
    assert text.count("</script>") == 2
    page = shown(visitor, text, tmp_path)
    assert page.locator("img").count() == 0
    visible = '</script><img src=x onerror="throw 1">⟨U+202E⟩evil⟨U+000A⟩'
    assert page.get_by_text(visible).count() > 0
    assert "leveret pipeline report --stream 'orders long" in page.locator(".command").inner_text()


@pytest.mark.parametrize("job", EMPTY)
def test_a_job_that_found_nothing_says_so(visitor: Any, tmp_path: Path, job: str) -> None:
    page = shown(visitor, EMPTY[job](), tmp_path, "narrow")
    expect(page.locator(".origin")).to_contain_text("not known")
    assert page.locator(".nothing").count() > 0
    assert page.evaluate(WIDER) <= 0


def test_a_table_is_sorted_and_filtered(visitor: Any, tmp_path: Path) -> None:
    page = shown(visitor, PAGES["route"](), tmp_path)
    table = page.get_by_role("region", name="Queues", exact=True)
    first = table.locator("tbody tr").first
    expect(first).to_contain_text("work.region0")
    table.get_by_role("button", name="Change").click()
    expect(first).to_contain_text("+12,000")
    table.get_by_role("button", name="Change").click()
    expect(first).to_contain_text("-2,666")
    page.get_by_label("Filter Queues").fill("region1 HOT")
    expect(table).to_contain_text("No row has this in it.")
    page.get_by_label("Filter Queues").fill("region15")
    expect(table.locator("tbody tr")).to_have_count(1)


def test_a_long_table_draws_what_is_seen_and_says_what_is_left_out(
    visitor: Any, tmp_path: Path
) -> None:
    page = shown(visitor, PAGES["report"](), tmp_path)
    expect(
        page.get_by_text("The 2,000 rows with the most messages; 1,000 of 3,000")
    ).to_be_visible()
    box = page.get_by_role("region", name="Windows")
    assert box.locator("tbody tr").count() < 200
    first = box.locator("tbody tr:not(.gap)").first
    before = first.inner_text()
    box.evaluate("box => box.scrollTo(0, box.scrollHeight)")
    expect(first).not_to_have_text(before)
    last = json.loads(page.locator("#data").text_content() or "")["windows"]["rows"][-1]
    expect(box.locator("tbody tr:not(.gap)").last).to_contain_text(f"{last[2]:,}")


def test_the_plot_tells_values_and_is_zoomed_by_a_drag(visitor: Any, tmp_path: Path) -> None:
    page = shown(visitor, PAGES["report"](), tmp_path)
    plot = page.locator("figure.plot")
    area = plot.locator(".u-over")
    area.scroll_into_view_if_needed()
    box = area.bounding_box()
    assert box is not None
    # The last values are told, then those under the pointer.
    legend = plot.locator(".u-legend")
    expect(legend).to_contain_text("2026-11-23")
    last = legend.inner_text()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 40)
    expect(legend).not_to_have_text(last, use_inner_text=True)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 40, steps=5)
    page.mouse.up()
    again = plot.get_by_role("button", name="Show all")
    again.click()
    expect(again).to_have_count(0)


def test_the_topology_follows_a_word_and_a_node(visitor: Any, tmp_path: Path) -> None:
    page = shown(visitor, PAGES["route"](), tmp_path)
    graph = page.locator("figure.graph")
    nodes = graph.locator(".graph-node")
    expect(nodes).to_have_count(19)
    graph.get_by_role("button", name="audit").hover()
    expect(graph.get_by_role("button", name="work.region9:")).to_have_class("graph-node queue dim")
    expect(graph.get_by_role("button", name="ingress")).to_have_class("graph-node exchange lit")
    page.get_by_label("Show bindings with").fill("region9")
    expect(nodes).to_have_count(2)


def test_the_reasons_and_the_stages_are_drawn(visitor: Any, tmp_path: Path) -> None:
    page = shown(visitor, PAGES["deadletter"](), tmp_path)
    graph = page.locator("figure.graph")
    for reason in ("rejected", "expired", "maxlen", "delivery_limit"):
        expect(graph.get_by_role("button", name=f"{reason}:")).to_be_visible()
    page = shown(visitor, PAGES["lifecycle"](), tmp_path)
    stages = page.locator(".stage")
    expect(stages).to_have_count(3)
    expect(stages.nth(1)).to_contain_text("of the time")
    graph = page.locator("figure.graph")
    expect(graph.get_by_role("button", name="Stuck:")).to_be_visible()


def test_dark_and_light_can_be_chosen(visitor: Any, tmp_path: Path) -> None:
    page = shown(visitor, PAGES["route"](), tmp_path, color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_label("Colours").select_option("dark")
    page.wait_for_function(f"{ground} !== {light!r}")


def test_every_row_is_printed(visitor: Any, tmp_path: Path) -> None:
    page = shown(visitor, PAGES["lifecycle"](), tmp_path)
    rows = page.get_by_role("region", name="Stuck messages").locator("tbody tr")
    assert rows.count() < 900
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(rows).to_have_count(900)


@pytest.mark.parametrize("job", ["route", "lifecycle"])
def test_what_is_printed_is_dark_on_white_and_as_wide_as_the_paper(
    visitor: Any, tmp_path: Path, job: str
) -> None:
    page = shown(visitor, PAGES[job](), tmp_path, color_scheme="dark")
    page.get_by_label("Colours").select_option("dark")
    page.set_viewport_size({"width": 720, "height": 1000})
    light = "Number(getComputedStyle(document.querySelector('h1')).color.match(/\\d+/)[0]) > 128"
    assert page.evaluate(light)
    page.emulate_media(media="print", color_scheme="dark")
    assert not page.evaluate(light)
    picture, box = page.locator(".graph-box svg"), page.locator(".graph-box")
    assert picture.bounding_box()["width"] <= box.bounding_box()["width"] + 1
