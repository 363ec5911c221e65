"""The parts of a broker that exist before recovery, and the end of the broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from leveret.app.parts import Parts, RandomStreamIds
from leveret.broker.broker import Broker
from leveret.clock import LivedClock
from leveret.config import Settings
from leveret.escaping import unquoted
from leveret.limits import STORE_FILES_MAX
from leveret.server.chunk_files import ChunkFiles
from leveret.server.runner import Runner
from leveret.store.disk import StorageFailure
from leveret.store.journal.journal import Journal

#: The exit code for an unexpected exception: EX_SOFTWARE of BSD's sysexits.h.
INTERNAL_ERROR: Final = 70


class Ending:
    """The end of a broker, by request or after a failure.

    `on_failure` is called with the exit code after a storage failure or an unexpected exception.
    Later failures are ignored.
    """

    def __init__(
        self, log: structlog.typing.FilteringBoundLogger, on_failure: Callable[[int], None]
    ) -> None:
        self.failure: StorageFailure | None = None
        #: The unexpected exception that stopped the broker.
        self.bug: BaseException | None = None
        self._log = log
        self._on_failure = on_failure
        self._wanted = asyncio.Event()
        self._runner: Runner | None = None

    def watch(self, runner: Runner) -> None:
        """Set the runner; if the broker fails, it is stopped and its connections are aborted."""
        self._runner = runner

    @property
    def exit_code(self) -> int:
        """The exit code of the process: 0 unless the broker failed."""
        if self.bug is not None:
            return INTERNAL_ERROR
        return 0 if self.failure is None else 1

    def is_wanted(self) -> bool:
        """Return whether the broker has been requested to stop or has failed."""
        return self._wanted.is_set()

    def request(self) -> None:
        """Request a graceful stop."""
        self._wanted.set()

    async def wait(self) -> None:
        """Wait for a stop request or a failure."""
        await self._wanted.wait()

    def check(self) -> None:
        """Raise the error that made the broker fail, if it has failed."""
        if self.failure is not None:
            raise self.failure
        if self.bug is not None:
            raise self.bug

    def failed(self, failure: StorageFailure) -> None:
        """Stop confirming and end, because the contents of the disk are no longer known."""
        if self.exit_code != 0:
            return
        self.failure = failure
        self._log.critical("storage failed, the broker stops", reason=str(failure))
        self._end()

    def broken(self, bug: BaseException) -> None:
        """Stop confirming and end, because the state in memory can no longer be trusted.

        Confirmed messages are on the disk; the next start recovers them.
        """
        if isinstance(bug, StorageFailure):
            self.failed(bug)
            return
        if self.exit_code != 0:
            return
        self.bug = bug
        said = "internal error, the broker stops: the next start recovers all confirmed messages"
        self._log.critical(said, reason=unquoted(bug), exc_info=bug)
        self._end()

    def _end(self) -> None:
        self._on_failure(self.exit_code)
        if self._runner is not None:
            self._runner.fail()
            for shell in self._runner.shells:
                shell.abort()
        self._wanted.set()


class Ground:
    """The parts of a broker that exist before recovery.  Raises: StorageFailure."""

    def __init__(self, settings: Settings, parts: Parts, on_failure: Callable[[int], None]) -> None:
        #: The settings in effect; replaced when they are reloaded (`app.reload`).
        self.settings = settings
        self.parts: Final = parts
        self.log: Final = parts.log()
        self.clock: Final = LivedClock(parts.clock())
        self.broker: Final = Broker(Journal(), settings.memory_bytes_max, RandomStreamIds())
        self.keep_to(settings)
        self.disk: Final = parts.disk()
        self.disk.spare(STORE_FILES_MAX)
        self.chunks: Final = ChunkFiles(self.disk)
        self.ending: Final = Ending(self.log, on_failure)

    def keep_to(self, settings: Settings) -> None:
        """Apply the memory and disk limits of the settings to the broker."""
        broker = self.broker
        broker.limit_memory(settings.memory_bytes_max)
        broker.core.accounts.definition_bytes_max = settings.definition_bytes_max
        broker.core.accounts.connection_bytes_max = settings.connection_bytes_max
        broker.core.memory.unacked.limit_all(settings.unacked_bytes_max)
        broker.disk_free_bytes_min = settings.disk_free_bytes_min
