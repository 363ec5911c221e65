"""What a broker has before it is recovered, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from leveret.app.parts import Parts, RandomStreamIds
from leveret.broker.node.broker import Broker
from leveret.clock import LivedClock
from leveret.config import Settings
from leveret.escaping import unquoted
from leveret.limits import STORE_FILES_MAX
from leveret.server.chunk_files import ChunkFiles
from leveret.server.runner import Runner
from leveret.store.disk import StorageFailure
from leveret.store.journal.journal import Journal

#: The exit code for an exception that nobody expected: EX_SOFTWARE of BSD's sysexits.h.
INTERNAL_ERROR: Final = 70


class Ending:
    """The end of a broker: asked for, or because of a failure.

    `on_failure` is called with the exit code when the storage fails, or what nobody expected
    happens.  The first failure is the one that counts.
    """

    def __init__(
        self, log: structlog.typing.FilteringBoundLogger, on_failure: Callable[[int], None]
    ) -> None:
        self.failure: StorageFailure | None = None
        #: What nobody expected, and stopped the broker.
        self.bug: BaseException | None = None
        self._log = log
        self._on_failure = on_failure
        self._wanted = asyncio.Event()
        self._runner: Runner | None = None

    def watch(self, runner: Runner) -> None:
        """Have a failure stop this runner from now on, and drop its connections."""
        self._runner = runner

    @property
    def exit_code(self) -> int:
        """0 until something ends the broker; then what the process ends with."""
        if self.bug is not None:
            return INTERNAL_ERROR
        return 0 if self.failure is None else 1

    def is_wanted(self) -> bool:
        """Tell whether the broker is about to end."""
        return self._wanted.is_set()

    def request(self) -> None:
        """Ask for a graceful stop."""
        self._wanted.set()

    async def wait(self) -> None:
        """Wait until a stop is asked for or something fails."""
        await self._wanted.wait()

    def check(self) -> None:
        """Raise what made the broker fail, if anything did."""
        if self.failure is not None:
            raise self.failure
        if self.bug is not None:
            raise self.bug

    def failed(self, failure: StorageFailure) -> None:
        """Confirm nothing more and end: what the disk holds is no longer known."""
        if self.exit_code != 0:
            return
        self.failure = failure
        self._log.critical("storage failed, the broker stops", reason=str(failure))
        self._end()

    def broken(self, bug: BaseException) -> None:
        """Confirm nothing more and end: nobody knows what is true of the state any more.

        What was confirmed is on the disk; the next start recovers it.
        """
        if isinstance(bug, StorageFailure):
            self.failed(bug)
            return
        if self.exit_code != 0:
            return
        self.bug = bug
        said = "internal error, the broker stops: the next start recovers what was confirmed"
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
    """What a broker has before it is recovered.  Raises: StorageFailure."""

    def __init__(self, settings: Settings, parts: Parts, on_failure: Callable[[int], None]) -> None:
        #: Others take their place when they are reloaded (`app.reload`).
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
        """Have the broker keep to what the settings say that memory and disk are used for."""
        broker = self.broker
        broker.limit_memory(settings.memory_bytes_max)
        broker.core.accounts.definition_bytes_max = settings.definition_bytes_max
        broker.core.accounts.connection_bytes_max = settings.connection_bytes_max
        broker.core.memory.unacked.limit_all(settings.unacked_bytes_max)
        broker.disk_free_bytes_min = settings.disk_free_bytes_min
