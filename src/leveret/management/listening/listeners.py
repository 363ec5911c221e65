"""All HTTP listeners: a Unix socket for the operator, TCP for the broker's users and for metrics.

As in RabbitMQ, metrics are served on their own port.  A broker that cannot listen for HTTP logs a
warning and runs without it.
"""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from leveret.management.chunk_source import ChunkSource
from leveret.management.keeper import GateKeeper
from leveret.management.listening.doors import Doors, Make
from leveret.management.listening.listener import HttpListener, Log, UnixListener
from leveret.management.listening.tcp import TcpListener, listen_on
from leveret.management.operator import Operator
from leveret.session.admission import Admission

if TYPE_CHECKING:
    from aiohttp.web import AppRunner

    from leveret.broker.broker import Broker


class HttpListeners:
    """The HTTP listeners of one broker."""

    def __init__(
        self, broker: Broker, operator: Operator, chunks: ChunkSource, doors: Doors, log: Log
    ) -> None:
        self._doors = doors
        self._broker = broker
        self._operator = operator
        self._chunks = chunks
        self._log = log
        self._started: list[HttpListener] = []
        #: The TCP ports of HTTP, HTTPS and metrics; 0 if not listening.
        self.port = 0
        self.tls_port = 0
        self.metrics_port = 0

    def start_unix(self, path: Path) -> None:
        """Listen on a Unix socket."""
        listener = UnixListener(
            path, self._broker, self._operator, self._chunks, self._doors, self._log
        )
        self._start(
            listener,
            f"on the management socket {path}",
            "AMQP continues, but leveret ctl, list and backup do not find this broker; choose "
            "another path by management_socket",
        )

    def start_tcp(
        self, plain: tuple[str, int] | None, tls: tuple[str, int] | None, keeper: GateKeeper
    ) -> None:
        """Listen on a host and port without TLS and on another with TLS; None leaves one out."""
        listener = TcpListener(
            self._broker, self._operator, self._chunks, self._doors, keeper, self._log
        )
        self.port = self._bind(listener, plain, "http", False)
        self.tls_port = self._bind(listener, tls, "https", True)
        if self.port or self.tls_port:
            self._start(listener, "for HTTP", "AMQP continues without it")

    def start_metrics(self, host: str, port: int) -> None:
        """Serve metrics to Prometheus, without authentication."""
        listener = MetricsListener(
            host, port, self._broker, self._operator, self._chunks, self._doors, self._log
        )
        remedy = "AMQP continues without it; choose another port by metrics_port, or none by "
        if self._start(listener, f"for metrics on {host}:{port}", f"{remedy}metrics=false"):
            self.metrics_port = listener.port
            self._log("info", f"listening for Prometheus on http://{host}:{listener.port}/metrics")

    def _bind(
        self, listener: TcpListener, place: tuple[str, int] | None, scheme: str, tls: bool
    ) -> int:
        """Bind a listener to a host and a port; return the port, or 0 if it cannot be bound."""
        if place is None:
            return 0
        host, port = place
        try:
            port = listener.bind(host, port, tls)
        except OSError as error:
            text = f"cannot listen for {scheme.upper()} on {host}:{port}"
            remedy = (
                f"AMQP continues without it; choose another port by {scheme}_port, or none by "
                f"{scheme}=false"
            )
            self._log("warning", f"{text}: {error.strerror or error}; {remedy}")
            return 0
        self._log("info", f"listening on {scheme}://{host}:{port}")
        return port

    def _start(self, listener: HttpListener, where: str, remedy: str) -> bool:
        try:
            listener.start()
        except OSError as error:
            self._log("warning", f"cannot listen {where}: {error.strerror or error}; {remedy}")
            return False
        self._started.append(listener)
        return True

    @property
    def admissions(self) -> list[Admission]:
        """The connection slots of each listener."""
        return [listener.admission for listener in self._started]

    @property
    def expelled(self) -> int:
        """The number of connections that were closed to make room for others."""
        return sum(int(admission.expelled) for admission in self.admissions)

    @property
    def refused(self) -> int:
        """The number of connections that were refused because all slots were taken."""
        return sum(int(admission.refused) for admission in self.admissions)

    async def stop(self) -> None:
        """Close all sockets and their connections."""
        await asyncio.gather(*(listener.stop() for listener in self._started))


class MetricsListener(HttpListener):
    """Serves the metrics of one broker to Prometheus, without authentication."""

    knows_all = False

    def __init__(
        self,
        host: str,
        port: int,
        broker: Broker,
        operator: Operator,
        chunks: ChunkSource,
        doors: Doors,
        log: Log,
    ) -> None:
        admission = Admission(doors.metrics_places)
        super().__init__(broker, operator, chunks, doors, admission, log)
        self._host = host
        #: The port; 0 until the listener starts if the kernel chooses it.
        self.port = port

    def _listen(self) -> list[socket.socket]:
        sockets, self.port = listen_on(self._host, self.port)
        return sockets

    def _load(self) -> AppRunner:
        from leveret.management.api import make_metrics_runner

        return make_metrics_runner(
            self._broker, self._operator, self._chunks, self._doors.clock, self._log
        )

    def _make(self, runner: AppRunner) -> Make:
        from leveret.management.connections.connection import HttpConnections

        assert runner.server is not None
        connections = HttpConnections(
            runner.server, self.admission, self._doors.clock, log=self._log
        )
        return connections.make
