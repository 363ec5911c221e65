"""The brokers that are compared, on this machine: two releases of RabbitMQ, and Leveret.

All are new and empty and are gone afterwards.  All are managed over HTTP, RabbitMQ on a loopback
port by its management plugin, Leveret on the Unix socket in its data directory.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

from rabbitmq import RabbitMQ, free_ports

from differential.stage import Host
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import ANSWER_SECONDS_MAX, Api

#: Those that Debian's package bundles.
PLUGINS: Final = (
    "rabbitmq_management",
    "rabbitmq_consistent_hash_exchange",
    "rabbitmq_random_exchange",
    "rabbitmq_recent_history_exchange",
)

HEADERS: Final = {
    "Authorization": "Basic " + base64.b64encode(b"guest:guest").decode(),
    "Content-Type": "application/json",
}

Connect = Callable[[], http.client.HTTPConnection]


def asker(connect: Connect) -> Callable[[str, str, Any], tuple[int, Any]]:
    """Return a function that asks an HTTP API: verb, path, body to status and answer."""

    def ask(verb: str, path: str, body: Any) -> tuple[int, Any]:
        with contextlib.closing(connect()) as connection:
            data = None if body is None else json.dumps(body)
            connection.request(verb, path, data, HEADERS)
            response = connection.getresponse()
            text = response.read()
        try:
            return response.status, json.loads(text)
        except ValueError:
            return response.status, None

    return ask


@contextlib.contextmanager
def rabbitmq(directory: Path, kind: type[RabbitMQ] = RabbitMQ) -> Iterator[Host]:
    """Run a RabbitMQ: the one that is installed, or that of Debian's next release."""
    (port,) = free_ports(1)
    configuration = f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {port}\n"
    with kind(directory, PLUGINS, configuration) as broker:
        api = asker(lambda: http.client.HTTPConnection("127.0.0.1", port, ANSWER_SECONDS_MAX))
        yield Host("rabbitmq", broker.uri, api, broker.version)


def over_tcp(host: Host) -> Host:
    """Return the same broker asked as its user guest on TCP, not by who operates it."""
    _, overview = host.api("GET", "/api/overview", None)
    (port,) = [one["port"] for one in overview["listeners"] if one["protocol"] == "http"]
    api = asker(lambda: http.client.HTTPConnection("127.0.0.1", port, ANSWER_SECONDS_MAX))
    return Host(host.name, host.uri, api, host.version)


@contextlib.contextmanager
def leveret(directory: Path) -> Iterator[Host]:
    """Run Leveret."""
    with BrokerProcess(directory / "leveret") as process:
        api = asker(lambda: Api(directory / "leveret" / "management.sock"))
        yield Host("leveret", process.uri, api)
