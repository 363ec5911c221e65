"""The jobs' pages in a browser: at both widths, in light and dark, with hostile names."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Locator, expect

from leveret.pipelines.archive.page import archive_page
from support.pages.job_samples import archive_sample
from support.pages.job_views import EMPTY, PAGES, SIZES, shown, some
from support.pages.page_measures import BROKEN, WIDER, faults_of


@pytest.fixture(scope="module")
def base() -> str:
    """An address where nothing is: a job's page comes from a file."""
    return "http://127.0.0.1:9/"


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("job", PAGES)
def test_no_word_is_broken_and_nothing_overflows(
    visitor: Any, tmp_path: Path, job: str, size: str
) -> None:
    page = shown(visitor, PAGES[job](), tmp_path, size, color_scheme="dark")
    assert page.evaluate(WIDER) <= 0
    assert page.evaluate(BROKEN) == []


@pytest.mark.pages_more
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("job", PAGES)
def test_everybody_can_use_each_page(
    visitor: Any, tmp_path: Path, job: str, scheme: str, size: str
) -> None:
    """Axe, which looks for what hinders people, finds nothing that is serious."""
    # A page of a job runs no script that it does not name, so that axe must be let in.
    page = shown(visitor, PAGES[job](), tmp_path, size, color_scheme=scheme, bypass_csp=True)
    assert faults_of(page) == []


@pytest.mark.pages_more
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("scheme", ["light", pytest.param("dark", marks=pytest.mark.pages_more)])
@pytest.mark.parametrize("job", EMPTY)
def test_everybody_can_use_a_page_without_data(
    visitor: Any, tmp_path: Path, job: str, scheme: str, size: str
) -> None:
    page = shown(visitor, EMPTY[job](), tmp_path, size, color_scheme=scheme, bypass_csp=True)
    assert faults_of(page) == []
    assert page.evaluate(WIDER) <= 0
    assert page.evaluate(BROKEN) == []


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


@pytest.mark.parametrize("job", some(["report", "deadletter", "archive", "replay"], "report"))
def test_a_plot_tells_values_and_is_zoomed_by_a_drag(
    visitor: Any, tmp_path: Path, job: str
) -> None:
    page = shown(visitor, PAGES[job](), tmp_path)
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


def counts(table: Locator, place: int) -> list[int] | None:
    """Return the counts in a column of a table, or None where it has other texts."""
    cells = table.locator(f"tbody tr:not(.gap) td:nth-child({place + 1})").all_inner_texts()
    texts = [cell.replace(",", "") for cell in cells]
    return [int(text) for text in texts] if all(text.isdecimal() for text in texts) else None


@pytest.mark.parametrize("job", some(PAGES, "archive"))
def test_each_table_is_sorted_by_each_column_and_filtered(
    visitor: Any, tmp_path: Path, job: str
) -> None:
    page = shown(visitor, PAGES[job](), tmp_path)
    counted = 0
    for table in page.locator("main .table").all():
        heads = table.locator("thead th")
        for place in range(heads.count()):
            ways = set()
            for _ in range(2):
                heads.nth(place).get_by_role("button").click()
                expect(table.locator("th[aria-sort]")).to_have_count(1)
                way = heads.nth(place).get_attribute("aria-sort")
                ways.add(way)
                if (found := counts(table, place)) is not None:
                    counted += 1
                    assert found == sorted(found, reverse=way == "descending")
            assert ways == {"ascending", "descending"}
        for field in table.get_by_role("searchbox").all():
            field.fill("no row has this")
            expect(table).to_contain_text("No row has this in it.")
            expect(table.locator("tbody tr")).to_have_count(0)
    assert counted > 2
    # The longest table has a filter.
    assert page.locator("main .table").get_by_role("searchbox").count() > 0


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


@pytest.mark.parametrize(
    ("job", "size"),
    [("route", "wide"), ("lifecycle", "narrow"), ("archive", "narrow"), ("replay", "narrow")],
)
def test_a_picture_of_few_columns_is_seen_whole(
    visitor: Any, tmp_path: Path, job: str, size: str
) -> None:
    page = shown(visitor, PAGES[job](), tmp_path, size)
    box = page.locator(".graph-box")
    assert box.evaluate("one => one.scrollWidth - one.clientWidth") <= 0


def test_a_picture_that_is_too_wide_begins_with_its_first_column(
    visitor: Any, tmp_path: Path
) -> None:
    page = shown(visitor, PAGES["route"](), tmp_path, "narrow")
    box, first = page.locator(".graph-box"), page.get_by_role("button", name="ingress")
    assert box.evaluate("one => one.scrollWidth > one.clientWidth")
    place, node = box.bounding_box(), first.bounding_box()
    assert place is not None
    assert node is not None
    assert node["y"] - place["y"] < 20


#: The texts of a picture that exceed their boxes.
EXCEEDING: Final = """() => [...document.querySelectorAll(".graph-node")].flatMap((node) => {
  const width = node.querySelector("rect").getBBox().width;
  const texts = [...node.querySelectorAll("text")];
  return texts.filter((text) => text.getBBox().width + 10 > width).map((text) => text.textContent);
})"""


@pytest.mark.parametrize("size", SIZES)
def test_names_fit_their_boxes_and_are_whole_where_there_is_space(
    visitor: Any, tmp_path: Path, size: str
) -> None:
    wide = "W" * 60
    ends = {wide: 1, "orders": 2_400_000, "payments of all regions and shops": 700_000}
    text = archive_page(replace(archive_sample(), next_offsets=ends))
    page = shown(visitor, text, tmp_path, size)
    assert page.evaluate(EXCEEDING) == []
    names = page.locator(".graph-node text").all_text_contents()
    assert any(name.startswith("WWW") and name.endswith("…") for name in names)
    assert "orders" in names
    if size == "wide":
        assert {"offsets 120,000 to 2,400,000", "payments of all regions and shops"} <= set(names)


def test_the_reasons_and_the_stages_are_drawn(visitor: Any, tmp_path: Path) -> None:
    page = shown(visitor, PAGES["deadletter"](), tmp_path)
    graph = page.locator("figure.graph")
    for reason in ("rejected", "expired", "maxlen", "delivery_limit"):
        expect(graph.get_by_role("button", name=f"{reason}:")).to_be_visible()
    page = shown(visitor, PAGES["lifecycle"](), tmp_path)
    stages = page.locator(".stage")
    expect(stages).to_have_count(3)
    expect(stages.nth(1)).to_contain_text("of the time")
    places = page.locator(".stage-row > li")
    expect(places).to_contain_text(
        ["Published", "Routing", "In a queue", "Waiting", "With a consumer", "Handling", "Acked"]
    )
    graph = page.locator("figure.graph")
    expect(graph.get_by_role("button", name="Stuck:")).to_be_visible()
    # A queue that nobody reads has passed no stage, and its messages wait nevertheless.
    bars = page.get_by_role("figure", name="Oldest waiting message")
    expect(bars.locator("[title='work.region2: 15 min']")).to_be_visible()


def test_an_archive_tells_its_size_and_what_it_lacks(visitor: Any, tmp_path: Path) -> None:
    page = shown(visitor, PAGES["archive"](), tmp_path)
    figures = page.locator("main > .figures > .figure").all_inner_texts()
    told = {name: value for name, *value in (text.split("\n") for text in figures)}
    assert told["Files"] == ["412", "40 added"]
    assert told["Bytes"] == ["8.4 GiB", "381.5 MiB added"]
    assert told["Ratio"] == ["3.7 : 1", "1.4 GiB in bodies"]
    assert told["Lag"] == ["1,234", "messages, at the last batch"]
    assert told["Oldest unarchived"][1].startswith("2026-11-23 ")
    streams = page.get_by_role("region", name="Streams", exact=True)
    expect(streams.locator("tbody tr", has_text="orders")).to_contain_text("1,200")
    # A run without new messages has nothing to measure against.
    done = replace(archive_sample(), lag={"orders": 0}, body_bytes=0)
    page = shown(visitor, archive_page(done), tmp_path)
    expect(page.locator(".figure", has_text="Oldest unarchived")).to_contain_text("none")


def test_the_zone_of_all_times_is_told_once(visitor: Any, tmp_path: Path) -> None:
    page = shown(visitor, PAGES["deadletter"](), tmp_path, timezone_id="Asia/Tokyo")
    assert page.get_by_text("Asia/Tokyo").count() == 1
    # The header tells the times of the plot.
    times = "2026-11-23 17:00:00 to 2026-11-23 18:00:00"
    expect(page.locator(".origin .times")).to_have_text(times)


def test_dark_and_light_can_be_chosen(visitor: Any, tmp_path: Path) -> None:
    page = shown(visitor, PAGES["route"](), tmp_path, color_scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(ground)
    page.get_by_label("Colours").select_option("dark")
    page.wait_for_function(f"{ground} !== {light!r}")
