"""Metrics on a separate port: for Prometheus, without a password, as in RabbitMQ."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from leveret.management.chunk_source import ChunkSource
from leveret.management.listening.doors import Doors, Make
from leveret.management.listening.listener import HttpListener, Log
from leveret.management.listening.tcp import listen_on
from leveret.management.operator import Operator
from leveret.session.admission import Admission

if TYPE_CHECKING:
    from aiohttp.web import AppRunner

    from leveret.broker.broker import Broker


class MetricsListener(HttpListener):
    """The metrics of one broker on a host and a port."""

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
        #: The port; 0 until it listens if the kernel is to choose one.
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
