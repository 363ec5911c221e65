"""The bench's page: its tables say what was measured, and it loads nothing."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import page
import pytest
from growth import GROWTHS
from scenarios import SCENARIOS, by_name

RABBIT = "RabbitMQ 4.3.6"


def result_of(**rates: dict[str, dict[str, list[float]]]) -> dict[str, Any]:
    """Return results with a scenario for each keyword."""
    found = {name.replace("_", "-"): sides for name, sides in rates.items()}
    scenarios = {
        name: page.described(by_name(name)) | {"sides": page.summaries(sides)}
        for name, sides in found.items()
    }
    empty: dict[str, Any] = {"starts": {}, "growth": {}, "programs": {}, "left_out": []}
    about = {"about": {"cores": "2"}, "versions": {"Leveret": "leveret 0"}, "failures": []}
    return empty | about | {"scenarios": scenarios}


def test_a_row_has_medians_spreads_and_the_ratio() -> None:
    result = result_of(
        auto_ack={
            page.LEVERET: {"delivered": [3000.0, 2000.0, 4000.0]},
            RABBIT: {"delivered": [1000.0]},
        }
    )
    row = page.scenario_table(result["scenarios"]).rows[1]
    assert row[0] == f"{by_name('auto-ack').title} (msg/s)"
    assert row[1:4] == ["3,000\u00a0±33\u00a0%", "1,000\u00a0±0\u00a0%", "3"]


def test_a_latency_is_better_where_it_is_less() -> None:
    times = {"p50": [10.0], "p99": [20.0], "p999": [30.0]}
    result = result_of(
        latency={page.LEVERET: times, RABBIT: {n: [2 * t[0]] for n, t in times.items()}}
    )
    row = page.scenario_table(result["scenarios"]).rows[1]
    assert row[1:4] == ["10 / 20 / 30", "20 / 40 / 60", "2"]


def test_a_side_that_failed_has_no_figure() -> None:
    sides = {page.LEVERET: {"delivered": [5.0]}, RABBIT: {"published": [1.0]}}
    result = result_of(auto_ack=sides)
    assert page.scenario_table(result["scenarios"]).rows[1][2:4] == ["", ""]
    assert "16 B, auto-ack" in page.html(result)


def test_the_tables_come_from_the_last_runs_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    result = result_of(auto_ack={page.LEVERET: {"delivered": [5.0]}})
    points = {"100": {"declare_us": 7.0}, "10000": {"declare_us": 9.0, "message_us": 0.25}}
    result["growth"] = {"queues": {page.LEVERET: points}}
    result["programs"] = {"large": {"peak_mb": 508.0, "rounds": [1.0, 3.0]}, "route": None}
    result["left_out"] = ["1,000,000 durable queues: RabbitMQ 4.3.6: more than 300 s"]
    (tmp_path / "results.json").write_text(json.dumps(result))
    monkeypatch.setattr("sys.argv", ["page.py", "--table", "--out", str(tmp_path)])
    assert page.main() == 0
    printed = capsys.readouterr().out
    assert "| µs per declare | Leveret | 7 | 9 |" in printed
    assert "| rounds (median of 2) | 2 |" in printed
    assert "left out: 1,000,000 durable queues: RabbitMQ 4.3.6" in printed
    assert "auto-ack | Leveret |  | 0.25 |" in printed


def test_the_page_loads_nothing_and_escapes_names() -> None:
    result = result_of(auto_ack={"<b>": {"delivered": [5.0, 6.0]}})
    result["growth"] = {"queues": {"<b>": {"100": {"declare_us": 7.0}, "10000": {"declare_us": 0}}}}
    shown = page.html(result)
    assert "<b>" not in shown
    assert not re.search(r"src=|href=|url\(|@import|<script", shown)
    assert shown.count("<svg") == 2


def test_scenarios_and_parts_have_names_of_their_own() -> None:
    assert page.arguments(["--only", "64k", "--only", "start", "--short"]).rounds == 1
    names = [one.name for one in SCENARIOS] + [part.name for part in GROWTHS]
    assert len({*names, page.START, *page.PROGRAMS}) == len(names) + 1 + len(page.PROGRAMS)
