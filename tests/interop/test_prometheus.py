"""Debian's Prometheus: its tool checks the text of our metrics, and our alert rules."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from leveret.client.blocking import connect
from support.brokers.brokers import Broker
from support.http.metrics_text import ask, metrics_port

DEPLOY = Path(__file__).parents[2] / "deploy"
RULES = DEPLOY / "prometheus" / "alerts.yaml"

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None or shutil.which("prometheus") is None,
    reason="Debian's package prometheus is not installed",
)

PATHS = (
    "/metrics",
    "/metrics/per-object",
    "/metrics/detailed?family=queue_metrics&family=channel_metrics&family=connection_metrics",
    "/metrics/memory-breakdown",
)


def promtool(*words: str, text: str | None = None) -> tuple[int, str]:
    """Return the exit code and what the tool says."""
    done = subprocess.run(
        ["promtool", *words], input=text, capture_output=True, text=True, check=False, timeout=60
    )
    return done.returncode, done.stdout + done.stderr


def test_the_rules_are_right() -> None:
    code, said = promtool("check", "rules", str(RULES))
    assert code == 0, said


#: What each rule is about, as labels; its series where that goes wrong, from the first minute to
#: the 60th; and the same series of one beside it where all is well.
CASES: dict[str, tuple[str, dict[str, tuple[str, str]]]] = {
    "LeveretDown": ("job=leveret", {"up": ("0x60", "1x60")}),
    "LeveretMemoryAlarm": ("", {"rabbitmq_alarms_memory_used_watermark": ("1x60", "0x60")}),
    "LeveretDiskAlarm": ("", {"rabbitmq_alarms_free_disk_space_watermark": ("1x60", "0x60")}),
    "LeveretDiskFilling": (
        "",
        {
            "rabbitmq_disk_space_available_bytes": ("2e11-1e9x60", "1e11x60"),
            "rabbitmq_disk_space_available_limit_bytes": ("1e9x60", "1e9x60"),
        },
    ),
    "LeveretDamageFound": ("", {"leveret_damage_places_total": ("0x55 1x9", "0x60")}),
    "LeveretSyncsSlow": (
        "",
        {
            'leveret_journal_sync_seconds_bucket{le="0.5"}': ("0x60", "0+9x60"),
            'leveret_journal_sync_seconds_bucket{le="1"}': ("0+9x60", "0+9x60"),
            'leveret_journal_sync_seconds_bucket{le="+Inf"}': ("0+9x60", "0+9x60"),
        },
    ),
    "LeveretCheckpointLong": ("", {"leveret_checkpoint_running": ("1x60", "1x50 0 1x9")}),
    "LeveretPlacesTaken": (
        "",
        {
            "rabbitmq_process_open_tcp_sockets": ("90x60", "70x60"),
            "rabbitmq_process_max_tcp_sockets": ("100x60", "100x60"),
        },
    ),
    "LeveretDescriptorsShort": (
        "",
        {
            "rabbitmq_process_open_fds": ("90x60", "70x60"),
            "rabbitmq_process_max_fds": ("100x60", "100x60"),
        },
    ),
    "LeveretMessagesUnroutable": (
        "",
        {"rabbitmq_global_messages_unroutable_dropped_total": ("0+9x60", "9x60")},
    ),
    "LeveretNobodyConsumes": (
        "vhost=/ queue=left",
        {
            "rabbitmq_detailed_queue_messages_ready": ("1001x60", "5000x60"),
            "rabbitmq_detailed_queue_consumers": ("0x60", "3x60"),
            'rabbitmq_detailed_queue_info{queue_type="rabbit_classic_queue"}': ("1x60", "1x60"),
        },
    ),
    "LeveretReaderBehind": (
        "vhost=/ stream=s consumer=slow",
        {"leveret_stream_consumer_lag": ("2e6+100x60", "9e6x60")},
    ),
    "LeveretQueuesUnwatched": (
        "job=leveret-queues of=queues",
        {"leveret_metrics_objects_omitted": ("1x60", "0x60")},
    ),
    "LeveretLoginsRefused": ("", {"rabbitmq_auth_attempts_failed_total": ("0+90x60", "0+9x60")}),
    "LeveretConnectionChurn": ("", {"rabbitmq_connections_opened_total": ("0+6e3x60", "0+9x60")}),
    "LeveretQuotaReached": ("", {"leveret_quota_refused_total": ("0+9x60", "9x60")}),
    "LeveretRestartedAfterCrash": (
        "",
        {
            "leveret_recovery_clean_stop": ("0x60", "0x60"),
            "rabbitmq_erlang_uptime_seconds": ("100x60", "9999x60"),
        },
    ),
}

#: One beside another: at another broker where a label says nothing of what it is.
BESIDE = {"queue": "busy", "consumer": "stopped", "job": "leveret"}


def labels_of(text: str) -> dict[str, str]:
    return dict(part.split("=") for part in text.split())


def series(name: str, labels: dict[str, str]) -> str:
    """Return a series with labels beside those in its name."""
    bare, _, own = name.partition("{")
    parts = [f"{label}={json.dumps(value)}" for label, value in labels.items()]
    return f"{bare}{{{','.join([*parts, *filter(None, [own.removesuffix('}')])])}}}"


def fires(alert: str, labels: dict[str, str], rows: dict[str, str], *, beside: Any) -> Any:
    """Return promtool's test that a rule fires for these labels and for nothing beside."""
    (rule,) = [
        one
        for group in yaml.safe_load(RULES.read_text())["groups"]
        for one in group["rules"]
        if one["alert"] == alert
    ]
    said = re.sub(r"{{ \$labels\.(\w+) }}", lambda m: labels[m[1]], rule["annotations"]["summary"])
    expected = {"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": {"summary": said}}
    return {
        "interval": "1m",
        "input_series": [
            {"series": name, "values": values} for name, values in {**rows, **beside}.items()
        ],
        "alert_rule_test": [
            {"eval_time": "60m", "alertname": alert, "exp_alerts": [expected] if rows else []}
        ],
    }


def check_rules(tmp_path: Path, tests: list[Any]) -> None:
    """Have promtool run tests of the rules."""
    file = tmp_path / "tests.json"
    file.write_text(json.dumps({"rule_files": [str(RULES)], "tests": tests}))
    code, said = promtool("test", "rules", str(file))
    assert code == 0, said


def test_each_rule_fires_for_what_goes_wrong_and_for_nothing_beside_it(tmp_path: Path) -> None:
    rules = yaml.safe_load(RULES.read_text())["groups"][0]["rules"]
    assert list(CASES) == [rule["alert"] for rule in rules]
    tests = []
    for alert, (text, rows) in CASES.items():
        labels = {"instance": "sick", **labels_of(text)}
        other = {name: BESIDE.get(name, value) for name, value in labels.items()}
        if "queue" not in labels and "consumer" not in labels:
            other["instance"] = "well"
        wrong = {series(name, labels): values for name, (values, _) in rows.items()}
        right = {series(name, other): values for name, (_, values) in rows.items()}
        tests.append(fires(alert, labels, wrong, beside=right))
    check_rules(tmp_path, tests)


def test_streams_need_no_consumer_and_a_missing_job_is_told_of(tmp_path: Path) -> None:
    stream = {"instance": "one", "vhost": "/", "queue": "log"}
    is_stream = series('rabbitmq_detailed_queue_info{queue_type="rabbit_stream_queue"}', stream)
    rows = {
        series("rabbitmq_detailed_queue_messages_ready", stream): "9000x60",
        series("rabbitmq_detailed_queue_consumers", stream): "0x60",
        is_stream: "1x60",
    }
    told = {"instance": "unwatched", "job": "leveret"}
    up = {
        series("up", {"instance": "watched", "job": "leveret"}): "1x60",
        series("up", {"instance": "watched", "job": "leveret-queues"}): "1x60",
    }
    check_rules(
        tmp_path,
        [
            fires("LeveretNobodyConsumes", stream, {}, beside=rows),
            fires("LeveretQueuesUnwatched", told, {series("up", told): "1x60"}, beside=up),
        ],
    )


@pytest.mark.parametrize("path", PATHS)
def test_the_tool_has_nothing_to_say_of_the_text(broker: Broker, path: str) -> None:
    with connect(broker.uri) as connection:
        channel = connection.channel()
        channel.queue_declare("checked")
        channel.consume("checked")
        if broker.process is None:
            pytest.skip("the broker is not ours")
        _, text, _ = ask(metrics_port(broker.process), path)
        assert promtool("check", "metrics", text=text) == (0, "")
        channel.queue_delete("checked")
