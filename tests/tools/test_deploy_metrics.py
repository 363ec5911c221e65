"""The dashboard and the alerts in `deploy/`: every metric that they name is one that we emit."""

from __future__ import annotations

import json
import re
from pathlib import Path

import yaml

from leveret.management.metrics import series as table

DEPLOY = Path(__file__).parents[2] / "deploy"
ALERTS = DEPLOY / "prometheus" / "alerts.yaml"
DASHBOARD = DEPLOY / "grafana" / "leveret.json"
JOBS = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())["scrape_configs"]

#: What Prometheus makes itself of each scrape.
BUILTIN = {"up"}

_METRIC = re.compile(r"\b((?:rabbitmq|leveret)_\w+)")


def emitted() -> set[str]:
    """The names of all samples of `/metrics`."""
    names: set[str] = set()
    for one in table.AGGREGATED.values():
        name = one.full_name("rabbitmq_")
        ends = ("_bucket", "_count", "_sum") if one.kind == table.HISTOGRAM else ("",)
        names.update(name + end for end in ends)
    (queues,) = (job for job in JOBS if job["job_name"] == "leveret-queues")
    detailed = dict(table.QUEUE_INFO)
    for family in queues["params"]["family"]:
        detailed.update(table.PER_OBJECT[family])
    names.update(one.full_name("rabbitmq_detailed_") for one in detailed.values())
    return names | set(table.ACCOUNT)


def expressions() -> list[str]:
    """What the panels of the dashboard ask for."""
    dashboard = json.loads(DASHBOARD.read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def test_every_metric_of_the_dashboard_is_emitted() -> None:
    asked = expressions()
    assert len(asked) > 40
    named = {name for expression in asked for name in _METRIC.findall(expression)}
    assert named
    assert named <= emitted()


def test_every_panel_has_a_place_of_its_own() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        fields = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not fields & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= fields


def test_every_metric_of_the_alerts_is_emitted() -> None:
    text = "\n".join(
        line for line in ALERTS.read_text().splitlines() if not line.lstrip().startswith("#")
    )
    assert text.count("- alert:") == len(set(re.findall(r"- alert: (\w+)", text)))
    named = set(_METRIC.findall(text))
    assert len(named) > 15
    assert named <= emitted()
