"""Parses metrics as Prometheus does, with the parser of its client library."""

from __future__ import annotations

import http.client
import re
import urllib.parse
from collections.abc import Mapping
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from support.brokers.broker_process import BrokerProcess

#: The time limit of an answer, for a busy machine.
_SECONDS_MAX: Final = 60.0


def metrics_port(broker: BrokerProcess) -> int:
    """Return the port of a broker's Prometheus listener."""
    line = broker.expect_line("listening for Prometheus")
    found = re.search(r"http://[^/]*:(\d+)/metrics", line)
    assert found is not None, line
    return int(found[1])


class Metrics:
    """One answer: the values of all samples by name and labels, and the types of the families."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples: dict[tuple[str, frozenset[tuple[str, str]]], float] = {}
        self.labels: dict[str, set[str]] = {}
        self.types: dict[str, str] = {}
        for family in text_string_to_metric_families(text):
            self.types[family.name] = family.type
            for sample in family.samples:
                key = (sample.name, frozenset(sample.labels.items()))
                assert key not in self.samples, f"{key} is there twice"
                self.samples[key] = sample.value
                self.labels.setdefault(sample.name, set()).update(sample.labels)

    @property
    def names(self) -> set[str]:
        """The names of all samples."""
        return {name for name, _ in self.samples}

    def value(self, name: str, **labels: str) -> float:
        """Return the sum of the samples of a name with at least these labels."""
        wanted = set(labels.items())
        found = [
            value for (one, has), value in self.samples.items() if one == name and wanted <= has
        ]
        assert found, f"there is no {name} with {labels}"
        return sum(found)


def ask(
    port: int, path: str, headers: Mapping[str, str] | None = None
) -> tuple[int, str, http.client.HTTPMessage]:
    """Return status, text and headers of the answer to a GET."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_SECONDS_MAX)
    try:
        connection.request("GET", path, headers=dict(headers or {}))
        response = connection.getresponse()
        return response.status, response.read().decode(), response.headers
    finally:
        connection.close()


def scrape(broker: BrokerProcess, path: str = "/metrics", **query: str) -> Metrics:
    """Return the answer of a broker's Prometheus port."""
    asked = f"{path}?{urllib.parse.urlencode(query)}" if query else path
    status, text, headers = ask(metrics_port(broker), asked)
    assert status == 200, text
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Metrics(text)
