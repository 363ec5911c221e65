"""The lag of a streaming query, and its metrics, which the driver serves to Prometheus.

Importing this module loads neither PySpark nor prometheus-client, which only the metrics need.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Gauge

_LABELS: Final = ("query", "query_id", "stream")


@dataclass(frozen=True, slots=True)
class Lag:
    """The number of messages of each stream that a query has not read after a batch."""

    #: Spark's id of the query.
    query_id: str
    #: The name of the query, if it has one.
    query_name: str | None
    #: The number of the batch.
    batch: int
    #: The number of messages of each stream, by its name.
    streams: Mapping[str, int]
    #: The approximate bytes of these messages, for streams whose broker reports sizes.
    bytes: Mapping[str, int] = field(default_factory=dict)

    @property
    def messages(self) -> int:
        """The number of messages in all streams."""
        return sum(self.streams.values())

    @property
    def bytes_behind(self) -> int | None:
        """The approximate bytes of these messages, or None if a broker does not report sizes."""
        return sum(self.bytes.values()) if self.bytes.keys() == self.streams.keys() else None


class LagMetrics:
    """The gauges of one registry, with a value for each stream of each running query."""

    def __init__(self, messages: Gauge, size: Gauge, port: int | None = None) -> None:
        self._messages = messages
        self._bytes = size
        #: The port at which the metrics are served, or None.
        self.port = port
        self._lock = threading.Lock()
        self._labels: dict[str, set[tuple[str, ...]]] = {}

    def set(self, lag: Lag) -> None:
        """Set the values of a query."""
        with self._lock:
            known = self._labels.setdefault(lag.query_id, set())
            for stream, count in lag.streams.items():
                labels = (lag.query_name or "", lag.query_id, stream)
                known.add(labels)
                self._messages.labels(*labels).set(count)
                if stream in lag.bytes:
                    self._bytes.labels(*labels).set(lag.bytes[stream])

    def forget(self, query_id: str) -> None:
        """Remove the values of a query."""
        with self._lock:
            for labels in self._labels.pop(query_id, ()):
                for gauge in (self._messages, self._bytes):
                    with contextlib.suppress(KeyError):  # it may have no value
                        gauge.remove(*labels)


#: The metrics that this process serves, by address and port.
_served: dict[tuple[str, int], LagMetrics] = {}


def metrics_at(address: str, port: int) -> LagMetrics:
    """Return the metrics that this process serves at an address; start serving them if necessary.

    Raises: ImportError without prometheus-client; OSError if the port is in use.
    """
    found = _served.get((address, port))
    if found is None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ModuleNotFoundError as error:
            raise ImportError(f"{error}: install it (pip install prometheus-client)") from None

        registry = CollectorRegistry()
        server, _ = start_http_server(port, address, registry)
        found = metrics_in(registry, server.server_port)
        _served[address, found.port or port] = found
    return found


def metrics_in(registry: CollectorRegistry, port: int | None = None) -> LagMetrics:
    """Register metrics in a registry.  Raises: ImportError without prometheus-client."""
    from prometheus_client import Gauge

    return LagMetrics(
        Gauge(
            "leveret_spark_offsets_behind_latest",
            "Messages of a stream that a query had not read after its last batch",
            _LABELS,
            registry=registry,
        ),
        Gauge(
            "leveret_spark_bytes_behind_latest",
            "The approximate bytes of these messages",
            _LABELS,
            registry=registry,
        ),
        port,
    )
