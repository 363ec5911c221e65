"""Debian's Prometheus scrapes a broker; each query of the dashboards and rules then has data."""

from __future__ import annotations

import http.client
import http.server
import json
import math
import re
import shutil
import subprocess
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any, Final, Self

import pytest
import yaml

from leveret.client import Returned
from leveret.client.blocking import connect
from support.brokers.broker_process import BrokerProcess
from support.http.metrics_text import metrics_port

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
#: How long an answer may take on a busy machine.
SECONDS_MAX: Final = 300.0
#: How many times the bell rings, at five a second, before a query that has no data never will; the
#: server finds its targets within 5 s.
RINGS_MAX: Final = 1_500

pytestmark = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="Debian's package prometheus is not installed"
)

#: What the public dashboard RabbitMQ-Overview shows as it is.
GAUGES = (
    "rabbitmq_erlang_uptime_seconds",
    "rabbitmq_connections",
    "rabbitmq_channels",
    "rabbitmq_queues",
    "rabbitmq_queue_messages_ready",
    "rabbitmq_queue_messages_unacked",
    "rabbitmq_global_publishers",
    "rabbitmq_global_consumers",
    "rabbitmq_resident_memory_limit_bytes",
    "rabbitmq_process_resident_memory_bytes",
    "rabbitmq_disk_space_available_bytes",
    "rabbitmq_disk_space_available_limit_bytes",
    "rabbitmq_process_max_fds",
    "rabbitmq_process_open_fds",
)

#: What it shows the rate of.
COUNTERS = (
    "rabbitmq_connections_opened_total",
    "rabbitmq_connections_closed_total",
    "rabbitmq_channels_opened_total",
    "rabbitmq_channels_closed_total",
    "rabbitmq_queues_declared_total",
    "rabbitmq_queues_created_total",
    "rabbitmq_queues_deleted_total",
    "rabbitmq_global_messages_received_total",
    "rabbitmq_global_messages_received_confirm_total",
    "rabbitmq_global_messages_confirmed_total",
    "rabbitmq_global_messages_routed_total",
    "rabbitmq_global_messages_unroutable_dropped_total",
    "rabbitmq_global_messages_unroutable_returned_total",
    "rabbitmq_global_messages_delivered_total",
    "rabbitmq_global_messages_delivered_consume_auto_ack_total",
    "rabbitmq_global_messages_delivered_consume_manual_ack_total",
    "rabbitmq_global_messages_delivered_get_auto_ack_total",
    "rabbitmq_global_messages_delivered_get_manual_ack_total",
    "rabbitmq_global_messages_redelivered_total",
    "rabbitmq_global_messages_acknowledged_total",
    "rabbitmq_global_messages_get_empty_total",
    'rabbitmq_message_size_bytes_bucket{le="100.0"}',
    'rabbitmq_message_size_bytes_bucket{le="1e+06"}',
    'rabbitmq_message_size_bytes_bucket{le="+Inf"}',
)

#: How each of its panels chooses the cluster and names the node.
IDENTITY = (
    "* on(instance, job) group_left(rabbitmq_cluster, rabbitmq_node) "
    'rabbitmq_identity_info{rabbitmq_cluster=~".+", rabbitmq_endpoint="aggregated", namespace=""}'
)

#: What stays 0 while nothing goes wrong, or until there are streams and pages.
MAY_BE_ZERO = re.compile(
    r"alarms|paged_out|stream|pages|unsynced|quota|dead_lettered|limit_bytes|auth_attempts_failed"
    r"|io_read"
)


def overview() -> list[str]:
    """Return queries in the form of the dashboard's, for each of its series."""
    shown = [f"sum({name} {IDENTITY}) by(rabbitmq_node)" for name in GAUGES]
    rates = [f"sum(rate({name}[60s]) {IDENTITY}) by(rabbitmq_node)" for name in COUNTERS]
    left = (
        ("rabbitmq_resident_memory_limit_bytes", "rabbitmq_process_resident_memory_bytes"),
        ("rabbitmq_process_max_fds", "rabbitmq_process_open_fds"),
    )
    return [
        *shown,
        *rates,
        f"rabbitmq_build_info {IDENTITY}",
        *(f"({limit} {IDENTITY}) - ({used} {IDENTITY})" for limit, used in left),
    ]


def ours() -> list[str]:
    """Return the queries of Leveret's dashboard, with Grafana's words filled in."""
    board = json.loads((DEPLOY / "grafana" / "leveret.json").read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    return [one.replace("$__rate_interval", "60s").replace("$instance", ".*") for one in found]


class Bell(http.server.BaseHTTPRequestHandler):
    """A second target without metrics, by which the tests hear that it is time to ask again."""

    def do_GET(self) -> None:
        """Answer that there is nothing."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


class BellServer(http.server.HTTPServer):
    """Takes one scrape at a time."""

    timeout = SECONDS_MAX

    def handle_timeout(self) -> None:
        """Fail when no scrape comes."""
        raise TimeoutError("Prometheus scrapes no more")

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Take it that a scrape which nobody waited for has been given up."""


class Prometheus:
    """Debian's server, which scrapes one broker once a second.

    No scrape may take longer than the time to the next one: with less, none would be good on a busy
    machine.
    """

    def __init__(self, folder: Path, target: str) -> None:
        rules = DEPLOY / "prometheus" / "alerts.yaml"
        self._bell = BellServer(("127.0.0.1", 0), Bell)
        bell = f"127.0.0.1:{self._bell.server_port}"
        deployed = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
        jobs = [
            {**job, "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
            for job in deployed["scrape_configs"]
        ]
        jobs.append({"job_name": "bell", "static_configs": [{"targets": [bell]}]})
        scrapes = {"scrape_interval": "200ms", "evaluation_interval": "200ms"}
        config = {"global": scrapes, "rule_files": [str(rules)], "scrape_configs": jobs}
        file = folder / "prometheus.json"
        file.write_text(json.dumps(config))
        self._process = subprocess.Popen(
            ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={folder / 'data'}",
             "--web.listen-address=127.0.0.1:0"],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._port = 0

    def __enter__(self) -> Self:
        assert self._process.stderr is not None
        said = []
        for line in self._process.stderr:
            said.append(line)
            found = re.search(r'"?Listening on"? address=127\.0\.0\.1:(\d+)', line)
            if found is not None:
                self._port = int(found[1])
            if "Server is ready" in line:
                break
        if not self._port:
            self._process.kill()
            raise AssertionError("".join(said))
        # It would stop at a full pipe.
        self._rest = Thread(target=self._process.stderr.read, daemon=True)
        self._rest.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait(SECONDS_MAX)
        self._rest.join(SECONDS_MAX)
        assert self._process.stderr is not None
        self._process.stderr.close()
        self._bell.server_close()

    def ask(self, path: str, **query: str) -> Any:
        """Return the data of a good answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=SECONDS_MAX)
        try:
            connection.request("GET", f"/api/v1/{path}?{urllib.parse.urlencode(query)}")
            answer = json.loads(connection.getresponse().read())
        finally:
            connection.close()
        assert answer["status"] == "success", (query, answer)
        return answer["data"]

    def values(self, query: str) -> list[float]:
        """Return the values that a query has now."""
        rows = self.ask("query", query=query)["result"]
        return [float(row["value"][1]) for row in rows]

    def targets(self) -> list[dict[str, Any]]:
        """Return the targets other than the bell when the last scrape of each was good."""
        while True:
            targets = self.ask("targets")["activeTargets"]
            found = [one for one in targets if one["labels"]["job"] != "bell"]
            if all(one["health"] == "up" and not one["lastError"] for one in found):
                return found
            self._bell.handle_request()

    def rules(self) -> list[dict[str, Any]]:
        """Return the rules when each has been computed."""
        while True:
            found = [rule for group in self.ask("rules")["groups"] for rule in group["rules"]]
            if all(rule["health"] != "unknown" for rule in found):
                return found
            self._bell.handle_request()

    def wait_for(self, queries: list[str]) -> list[str]:
        """Ask until each query has data; return those that never had."""
        left = queries
        for _ in range(RINGS_MAX):
            left = [query for query in left if not has_data(query, self.values(query))]
            if not left:
                break
            self._bell.handle_request()
        return left


def has_data(query: str, values: list[float]) -> bool:
    """Return whether values are there, and show what happened where something did."""
    known = [value for value in values if not math.isnan(value)]
    return bool(known) and (MAY_BE_ZERO.search(query) is not None or any(known))


def traffic(uri: str) -> None:
    """Do each thing that the dashboards show, and leave nothing behind."""
    with connect(uri) as connection:
        channel = connection.channel()
        channel.queue_declare("seen")
        for _ in range(6):
            channel.publish(b"x", "", "seen")
        channel.publish(b"x", "amq.direct", "nowhere")
        confirming = connection.channel()
        confirming.confirm_select()
        with pytest.raises(Returned):
            confirming.publish(b"x", "amq.direct", "nowhere", mandatory=True)
        confirming.publish(b"x", "", "seen")
        first = channel.get("seen")
        assert first is not None
        first.reject(requeue=True)
        again = channel.get("seen")
        assert again is not None
        assert again.redelivered
        again.ack()
        assert channel.get("seen", no_ack=True) is not None
        consumer = channel.consume("seen")
        next(consumer).ack()
        channel.close()
        auto = connection.channel()
        next(auto.consume("seen", no_ack=True))
        auto.close()
        confirming.queue_purge("seen")
        assert confirming.get("seen") is None
        confirming.queue_delete("seen")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker of these tests' own."""
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as process:
        yield process


@pytest.fixture(scope="module")
def watched(
    broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Prometheus]:
    """A server that has seen a broker before and after each thing happened there."""
    with connect(broker.uri) as connection:
        channel = connection.channel()
        channel.queue_declare("standing", exclusive=True)
        channel.publish(b"x", "", "standing")
        channel.publish(b"x", "", "standing")
        channel.qos(1)
        next(channel.consume("standing"))
        target = f"127.0.0.1:{metrics_port(broker)}"
        with Prometheus(tmp_path_factory.mktemp("prometheus"), target) as server:
            assert server.wait_for(["count_over_time(rabbitmq_connections[1h]) > 1"]) == []
            traffic(broker.uri)
            yield server


def test_each_query_of_the_rabbitmq_overview_has_data(watched: Prometheus) -> None:
    assert watched.wait_for(overview()) == []


def test_each_query_of_our_dashboard_has_data(watched: Prometheus) -> None:
    assert watched.wait_for(ours()) == []


def test_the_scrape_is_good_and_the_rules_can_be_computed(watched: Prometheus) -> None:
    # The queue `standing`, of which the alerts about single queues are told.
    of_queues = ("messages_ready", "consumers", 'info{queue_type="rabbit_classic_queue"}')
    assert watched.wait_for([f"rabbitmq_detailed_queue_{name}" for name in of_queues]) == []
    jobs = [one["labels"]["job"] for one in watched.targets()]
    assert sorted(jobs) == ["leveret", "leveret-queues"]
    rules = watched.rules()
    assert len(rules) >= 10
    assert {rule["name"]: rule.get("lastError") for rule in rules if rule["health"] != "ok"} == {}
    assert [rule["name"] for rule in rules if rule["state"] == "firing"] == []
