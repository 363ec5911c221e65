"""A broker embedded in another program: its parts, and the handles that control it.

Nothing is patched.  Faults come from other implementations of the broker's parts: a disk that can
be full, a clock that can be moved forward, and a listener with faulty connections.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from leveret.app.engine import Engine
from leveret.app.node import RunningBroker
from leveret.app.parts import Parts, SystemClock, SystemTokens
from leveret.broker.broker import Broker
from leveret.broker.users.users import User, hash_password
from leveret.clock import NO_DEADLINE, Clock
from leveret.config import Settings, given
from leveret.management.operator import ended
from leveret.server.amqp import Log
from leveret.server.faults.listener import FaultyListener
from leveret.server.faults.traffic import InjectedFaults, Refusal
from leveret.server.listener import AmqpListener
from leveret.server.log import forward_log
from leveret.server.runner import Runner
from leveret.session.admission import Admission
from leveret.session.authentication import Authenticator
from leveret.session.connection.connection import AmqpConnection
from leveret.session.settings import SessionSettings
from leveret.store.disk import Disk, RealDisk
from leveret.store.disks.fillable import FillableDisk
from leveret.store.disks.memory import MemoryDisk

#: The Python logger that receives the broker's log.
LOGGER: Final = "leveret.broker"

#: The defaults of an embedded broker that differ from those of a server.  Without heartbeats, a
#: test can move the clock forward without losing its connections.  A failed login is answered at
#: once, and no ballast is reserved for a full disk.
DEFAULTS: Final[Mapping[str, object]] = {
    "ballast_bytes": 0,
    "consumer_timeout_ms": 0,
    "disk_free_bytes_min": 1024 * 1024,
    "heartbeat_seconds": 0,
    "http": False,
    "http_port": 0,
    "https": False,
    "https_port": 0,
    "log_level": "warning",
    "metrics": False,
    "metrics_port": 0,
    "login_failure_delay_ms": 0,
    "port": 0,
    "sync": "never",
    "tls_port": 0,
    "uvloop": False,
}

#: The maximum number of steps in which the clock is moved.  Otherwise each deadline would take a
#: step, for example that of each message in a large queue.
STEPS_MAX: Final = 10_000

_SALT: Final = b"test"

#: The interval of checks whether a write has finished.
_LOOK_SECONDS: Final = 0.001


def embedded_settings(settings: Mapping[str, object]) -> Settings:
    """Return the settings of an embedded broker, ignoring the environment and settings files.

    Raises: ConfigError.
    """
    return given({**DEFAULTS, **settings})


class MovableClock(Clock):
    """The machine's clocks plus an offset."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._ahead_ms = 0

    def move(self, by_ms: int) -> None:
        """Move both clocks forward."""
        self._ahead_ms += by_ms

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch, plus the offset."""
        return self._clock.wall_ms() + self._ahead_ms

    def monotonic_ms(self) -> int:
        """Return milliseconds of a monotonic clock, plus the offset."""
        return self._clock.monotonic_ms() + self._ahead_ms


class EmbeddedParts(Parts):
    """The parts of successive embedded brokers that share one disk, real or in memory."""

    def __init__(self, settings: Settings, in_memory: bool) -> None:
        super().__init__(settings)
        self._memory = MemoryDisk() if in_memory else None
        self.movable_clock = MovableClock()
        self.traffic = InjectedFaults()
        self.fillable: FillableDisk | None = None

    def log(self) -> structlog.typing.FilteringBoundLogger:
        """Return a log that writes to Python's logging."""
        return forward_log(LOGGER, self.settings.log_level, self.recent.add)

    def clock(self) -> Clock:
        """Return the clock, whose offset the next broker keeps."""
        return self.movable_clock

    def disk(self) -> Disk:
        """Return the disk, whose contents the next broker recovers.  Raises: StorageFailure."""
        real = self._memory or RealDisk(str(self.settings.data_dir))
        full = self.fillable is not None and self.fillable.full
        self.fillable = FillableDisk(real, full)
        return self.fillable

    def first_user(self, name: str, password: bytes) -> User:
        """Return the first user, with a fast hash because a test's password is not secret."""
        return User(name, hash_password(_SALT, password), ["administrator"])

    def management_socket(self) -> Path | None:
        """Return the path of the operator's Unix socket, or None with a disk in memory."""
        return None if self._memory is not None else super().management_socket()

    def listener(
        self,
        runner: Runner,
        broker: Broker,
        settings: SessionSettings,
        authenticator: Authenticator,
        admission: Admission,
        log: Log,
        say: Callable[[str, str], None],
    ) -> AmqpListener:
        """Return a listener whose connections are subject to the faults of `traffic`."""
        return FaultyListener(
            self.traffic,
            runner,
            broker,
            settings,
            authenticator,
            SystemTokens(),
            admission,
            log,
            say,
        )


class Handles:
    """Operations on the embedded broker, which run in the broker's event loop."""

    def __init__(self, node: RunningBroker, parts: EmbeddedParts) -> None:
        self._node = node
        self._parts = parts

    @property
    def _engine(self) -> Engine:
        return self._node.engine

    async def add_vhost(self, name: str) -> None:
        """Add a vhost and give the first user all permissions in it.

        Raises: PreconditionFailed (406).
        """
        runner = self._engine.runner
        runner.now()
        broker = self._node.broker
        broker.add_vhost(name)
        user = self._node.settings.default_user
        if user in broker.users.by_name:
            broker.users.set_permission(user, name, ".*", ".*", ".*")
        await runner.durable()

    async def delete_vhost(self, name: str) -> None:
        """Delete a vhost with everything in it, and close its connections.

        Raises: NotFound (404).
        """
        runner = self._engine.runner
        runner.now()
        dissolving = self._node.broker.delete_vhost(name)
        await ended(dissolving, runner.durable)

    async def http_port(self) -> int:
        """Return the port for HTTP, or 0 if the broker does not listen for HTTP."""
        return self._node.listeners.http.port

    async def tls_port(self) -> int:
        """Return the port for AMQP over TLS, or 0 if the broker does not listen for it."""
        return self._node.listeners.tls_port

    async def connections(self) -> int:
        """Return the number of connected clients."""
        return len(self._engine.runner.shells)

    async def drop_connections(self) -> int:
        """Abort the sockets of all clients, and return their number."""
        shells = self._engine.runner.shells
        for shell in shells:
            shell.abort()
        # Let the event loop report the lost connections.
        await asyncio.sleep(0)
        return len(shells)

    async def block(self, on: bool) -> None:
        """Block publishers as if memory were short, or unblock them."""
        self._engine.runner.now()
        self._node.broker.force_alarm(on)
        self._engine.runner.run()

    async def fill_disk(self, on: bool) -> None:
        """Make the disk full or free it again, and let the broker detect that."""
        assert self._parts.fillable is not None
        self._parts.fillable.full = on
        engine = self._engine
        await engine.runner.in_sync_thread(engine.space.measure)
        engine.space.judge()
        engine.runner.run()

    async def delay(self, seconds: float) -> None:
        """Delay all later input from clients by `seconds`."""
        self._parts.traffic.delay_seconds = seconds

    async def nack_next(self, count: int) -> None:
        """Answer the next `count` publishes on confirm channels with basic.nack."""
        self._parts.traffic.nacks_left = count

    async def reset_next(self, count: int) -> None:
        """Reset the next `count` connections before the broker sends anything."""
        self._parts.traffic.resets_left = count

    async def refuse_next(self, method: str, count: int, code: int, text: str) -> None:
        """Answer the next `count` methods of a kind with an error.  Raises: ValueError."""
        self._parts.traffic.refuse(Refusal(method, count, code, text))

    async def heal(self) -> None:
        """Undo all lasting faults."""
        self._parts.traffic.clear()
        await self.block(False)
        await self.fill_disk(False)

    async def advance(self, seconds: float, heartbeats: bool) -> None:
        """Move the broker's clock forward, from deadline to deadline.

        Everything due in this time happens in order: an expired message is dead-lettered, and may
        expire again in the next queue.  Without `heartbeats`, the time does not count as inactivity
        of the clients.
        """
        left_ms = round(seconds * 1000)
        step_ms_min = max(1, left_ms // STEPS_MAX)
        runner = self._engine.runner
        await self._settle()
        while left_ms > 0:
            next_ms = runner.next_deadline_ms
            step_ms = left_ms
            if next_ms != NO_DEADLINE:
                until_ms = next_ms - self._node.clock.wall_ms()
                step_ms = min(left_ms, max(until_ms, step_ms_min))
            left_ms -= step_ms
            self._parts.movable_clock.move(step_ms)
            self._node.clock.moved(step_ms)
            if not heartbeats:
                for shell in runner.shells:
                    connection = shell.connection
                    if isinstance(connection, AmqpConnection):
                        connection.heartbeat.input_ms = self._node.clock.monotonic_ms()
            runner.clock_moved()
            await self._settle()
        # The broker reads once more from an inactive peer before it closes the connection.
        await asyncio.sleep(0)
        runner.tick()
        await self._settle()
        await asyncio.sleep(0)

    async def _settle(self) -> None:
        """Wait until all immediate work is done and synced, or a write waits for disk space."""
        runner = self._engine.runner
        runner.run()
        while not runner.failed and not self._engine.space.stuck:
            if runner.has_more_to_do:
                await asyncio.sleep(0)
            elif runner.busy:
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                return
