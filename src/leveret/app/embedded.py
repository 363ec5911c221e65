"""A broker inside another program: its parts, and the handles by which that program moves it.

Nothing is patched.  The faults are real second implementations of what a broker is made of: a disk
that is full when it is told to be, a clock that is moved on, a listener whose connections suffer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import structlog

from leveret.app.engine import Engine
from leveret.app.node import Node
from leveret.app.parts import Parts, SystemClock, SystemTokens
from leveret.broker.node.broker import Broker
from leveret.broker.node.users import User, hash_password
from leveret.clock import NO_DEADLINE, Clock
from leveret.config import Settings, given
from leveret.management.operator import ended
from leveret.server.amqp import Log
from leveret.server.faults.listener import FaultyListener
from leveret.server.faults.traffic import Refusal, Traffic
from leveret.server.listener import AmqpListener
from leveret.server.log import forward_log
from leveret.server.runner import Runner
from leveret.session.admission import Admission
from leveret.session.authentication import Authenticator
from leveret.session.connection.connection import Connection
from leveret.session.settings import SessionSettings
from leveret.store.disk import Disk, RealDisk
from leveret.store.disks.fillable import FillableDisk
from leveret.store.disks.memory import MemoryDisk

#: Python's logger that has the broker's log.
LOGGER: Final = "leveret.broker"

#: What an embedded broker does otherwise than one that serves a machine, unless it is told.
#: Without heartbeats a test may move the clock on and keep its connections.  A login that fails is
#: answered at once, and no ballast waits for a disk that is full.
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

#: The most steps in which the clock is moved on: a deadline for each message of a large queue
#: would otherwise take one each.
STEPS_MAX: Final = 10_000

_SALT: Final = b"test"

#: How soon a write that is under way is looked at again.
_LOOK_SECONDS: Final = 0.001


def embedded_settings(settings: Mapping[str, object]) -> Settings:
    """Return the settings of an embedded broker; the environment and files say nothing.

    Raises: ConfigError.
    """
    return given({**DEFAULTS, **settings})


class MovableClock(Clock):
    """The machine's clocks, and what they were moved on by."""

    def __init__(self) -> None:
        self._clock = SystemClock()
        self._ahead_ms = 0

    def move(self, by_ms: int) -> None:
        """Move both times on."""
        self._ahead_ms += by_ms

    def wall_ms(self) -> int:
        """Return milliseconds since the Unix epoch, and more."""
        return self._clock.wall_ms() + self._ahead_ms

    def monotonic_ms(self) -> int:
        """Return milliseconds of a clock that never goes back, and more."""
        return self._clock.monotonic_ms() + self._ahead_ms


class EmbeddedParts(Parts):
    """The parts of embedded brokers that follow each other on one disk, in memory or not."""

    def __init__(self, settings: Settings, in_memory: bool) -> None:
        super().__init__(settings)
        self._memory = MemoryDisk() if in_memory else None
        self.movable_clock = MovableClock()
        self.traffic = Traffic()
        self.fillable: FillableDisk | None = None

    def log(self) -> structlog.typing.FilteringBoundLogger:
        """Return a log that goes to Python's logging."""
        return forward_log(LOGGER, self.settings.log_level, self.recent.add)

    def clock(self) -> Clock:
        """Return the clocks; one that was moved on stays so for the next broker."""
        return self.movable_clock

    def disk(self) -> Disk:
        """Return the disk, whose contents the next broker finds.  Raises: StorageFailure."""
        real = self._memory or RealDisk(str(self.settings.data_dir))
        full = self.fillable is not None and self.fillable.full
        self.fillable = FillableDisk(real, full)
        return self.fillable

    def first_user(self, name: str, password: bytes) -> User:
        """Return the first user, with a hash that takes no time: a test's password is no secret."""
        return User(name, hash_password(_SALT, password), ["administrator"])

    def management_socket(self) -> Path | None:
        """Return where the operator's Unix socket lies, which needs a directory."""
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
        """Return a listener whose connections suffer `traffic`."""
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
    """What a program can do to the broker that it embeds; all in the broker's loop."""

    def __init__(self, node: Node, parts: EmbeddedParts) -> None:
        self._node = node
        self._parts = parts

    @property
    def _engine(self) -> Engine:
        return self._node.engine

    async def add_vhost(self, name: str) -> None:
        """Add a vhost that the first user may do everything in.

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
        """Delete a vhost with all that is in it, and close its connections.

        Raises: NotFound (404).
        """
        runner = self._engine.runner
        runner.now()
        dissolving = self._node.broker.delete_vhost(name)
        await ended(dissolving, runner.durable)

    async def http_port(self) -> int:
        """Return where the broker listens for HTTP; 0 where it does not."""
        return self._node.listeners.http.port

    async def tls_port(self) -> int:
        """Return where the broker listens for AMQP over TLS; 0 where it does not."""
        return self._node.listeners.tls_port

    async def connections(self) -> int:
        """Return how many clients are connected."""
        return len(self._engine.runner.shells)

    async def drop_connections(self) -> int:
        """Drop the sockets of all clients without a word; return how many there were."""
        shells = self._engine.runner.shells
        for shell in shells:
            shell.abort()
        # The loop tells each of them that its socket is gone before it goes on here.
        await asyncio.sleep(0)
        return len(shells)

    async def block(self, on: bool) -> None:
        """Block publishers as a broker does whose memory is short, or let them go on."""
        self._engine.runner.now()
        self._node.broker.force_alarm(on)
        self._engine.runner.run()

    async def fill_disk(self, on: bool) -> None:
        """Have the disk be full, or have room again, and let the broker find that out."""
        assert self._parts.fillable is not None
        self._parts.fillable.full = on
        engine = self._engine
        await engine.runner.in_sync_thread(engine.space.measure)
        engine.space.judge()
        engine.runner.run()

    async def delay(self, seconds: float) -> None:
        """Have what clients send arrive so much later from now on."""
        self._parts.traffic.delay_seconds = seconds

    async def nack_next(self, count: int) -> None:
        """Answer the next publishes on channels with confirms by a basic.nack."""
        self._parts.traffic.nacks_left = count

    async def reset_next(self, count: int) -> None:
        """Reset the next connections before the broker says a word."""
        self._parts.traffic.resets_left = count

    async def refuse_next(self, method: str, count: int, code: int, text: str) -> None:
        """Answer the next methods of a kind by an error.  Raises: ValueError."""
        self._parts.traffic.refuse(Refusal(method, count, code, text))

    async def heal(self) -> None:
        """Undo all faults that last."""
        self._parts.traffic.clear()
        await self.block(False)
        await self.fill_disk(False)

    async def advance(self, seconds: float, heartbeats: bool) -> None:
        """Move the broker's clock on, from deadline to deadline.

        All that is due on the way happens in its order: what expires goes where it is
        dead-lettered, and may expire there again.  Without `heartbeats` the time is no silence of
        the clients.
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
                    if isinstance(connection, Connection):
                        connection.heartbeat.input_ms = self._node.clock.monotonic_ms()
            runner.clock_moved()
            await self._settle()
        # A peer that seems silent is read from once more before its connection is closed.
        await asyncio.sleep(0)
        runner.tick()
        await self._settle()
        await asyncio.sleep(0)

    async def _settle(self) -> None:
        """Wait until nothing is left to do at once, and the disk has what it has room for."""
        runner = self._engine.runner
        runner.run()
        while not runner.failed and not self._engine.space.stuck:
            if runner.has_more_to_do:
                await asyncio.sleep(0)
            elif runner.busy:
                await asyncio.sleep(_LOOK_SECONDS)
            else:
                return
