"""The parts of a broker that provide time, randomness, files and the log.

Other kinds of brokers override some of them, such as a test broker with its files in memory.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from pathlib import Path

import structlog

from leveret.broker.broker import Broker
from leveret.broker.recovery.checkpoint import BrokerCheckpoint
from leveret.broker.recovery.compaction import Compaction
from leveret.broker.users.users import ARGON2, User
from leveret.broker.vhost.ids import StreamIds
from leveret.clock import Clock
from leveret.config import Settings
from leveret.management.sampling.recent_log import RecentLog
from leveret.server.amqp import Log
from leveret.server.authentication import hash_argon2
from leveret.server.listener import AmqpListener
from leveret.server.log import Threshold, make_log
from leveret.server.runner import Runner
from leveret.session.admission import Admission
from leveret.session.authentication import Authenticator
from leveret.session.settings import SessionSettings, Tokens
from leveret.store.checkpoint.checkpoint import CheckpointSource
from leveret.store.disk import Disk, RealDisk


class SystemClock(Clock):
    """The machine's clocks."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)

    def wall_ms(self) -> int:
        """Return the time in milliseconds since the Unix epoch.

        It is the wall time at the start plus the elapsed time, including suspensions of the
        machine, so that messages do not expire when the machine's clock is set.
        """
        return (time.clock_gettime_ns(time.CLOCK_BOOTTIME) + self._offset_ns) // 1_000_000

    def monotonic_ms(self) -> int:
        """Return the time of a monotonic clock in milliseconds."""
        return time.monotonic_ns() // 1_000_000


class SystemTokens(Tokens):
    """Tokens from the operating system's random number generator."""

    def token(self) -> str:
        """Return 16 random bytes as URL-safe base 64."""
        return secrets.token_urlsafe(16)


class RandomStreamIds(StreamIds):
    """Stream ids from the operating system's random number generator."""

    def new_id(self) -> str:
        """Return 8 random bytes as hexadecimal digits."""
        return secrets.token_hex(8)


class Parts:
    """The parts of a normal broker, created from its settings."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        #: The lowest level that is logged.
        self.threshold = Threshold(settings.log_level)
        #: The last lines of the log, for readers over HTTP.
        self.recent = RecentLog()

    def log(self) -> structlog.typing.FilteringBoundLogger:
        """Return the broker's log."""
        return make_log(self.threshold, self.settings.log_format, self.recent.add)

    def clock(self) -> Clock:
        """Return the clocks."""
        return SystemClock()

    def disk(self) -> Disk:
        """Return the disk for all file access.  Raises: StorageFailure."""
        return RealDisk(str(self.settings.data_dir))

    def first_user(self, name: str, password: bytes) -> User:
        """Return the first user of a broker without users; hashing takes about 20 ms."""
        return User(name, hash_argon2(password), ["administrator"], ARGON2)

    def management_socket(self) -> Path | None:
        """Return the path of the operator's Unix socket, or None for no socket."""
        return self.settings.management_socket

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
        """Return the listener for AMQP."""
        tokens = SystemTokens()
        return AmqpListener(runner, broker, settings, authenticator, tokens, admission, log, say)

    def checkpoint_source(self, broker: Broker, compaction: Compaction | None) -> CheckpointSource:
        """Return the source of the broker's state for the next checkpoint."""
        return BrokerCheckpoint(broker, compaction)
