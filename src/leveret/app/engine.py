"""The parts of a broker that run after recovery: disk threads, runner, upkeep and logins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial

from leveret.app.ground import Ground
from leveret.app.recovery import RecoveryResult
from leveret.config import Settings
from leveret.server.authentication import PasswordAuthenticator
from leveret.server.runner import DiskThreads, Runner
from leveret.server.space import Space
from leveret.server.upkeep import Upkeep, UpkeepLimits
from leveret.store.ballast import Ballast
from leveret.store.disk import StorageFailure
from leveret.store.journal.files import JournalFiles
from leveret.store.journal.journal import JournalGroup


def upkeep_limits(settings: Settings) -> UpkeepLimits:
    """Return the thresholds for upkeep from the settings."""
    return UpkeepLimits(
        settings.journal_bytes_max, settings.compact_records_min, settings.compact_live_percent
    )


class Engine:
    """The parts of one broker that run after recovery; created in the broker's event loop."""

    def __init__(self, ground: Ground, recovered: RecoveryResult) -> None:
        settings = ground.settings
        ending = ground.ending
        loop = asyncio.get_running_loop()
        ballast = Ballast(ground.disk, settings.ballast_bytes)
        self._ground = ground
        self._io = ground.broker.core.io
        self._sync_always = settings.sync == "always"
        self._unsynced = False
        self._files = JournalFiles(ground.disk, ballast)
        self.space = Space(ground.disk, ground.broker, ballast, ground.log)
        self.threads = DiskThreads(loop, ending.failed, ending.broken)
        self.runner = Runner(
            loop,
            ground.broker,
            ground.clock,
            self.threads,
            self._write_group,
            ground.chunks,
            ending.broken,
        )
        self.upkeep = Upkeep(
            upkeep_limits(settings),
            ground.broker,
            ground.clock,
            ground.log,
            ground.disk,
            self.space,
            self.runner,
            recovered.checkpoints,
            partial(ground.parts.checkpoint_source, ground.broker),
            ending.is_wanted,
            ending.failed,
        )
        # A checkpoint drops damaged records and saves their readable messages in a new chunk.
        self.upkeep.wanted = bool(recovered.report.damages or recovered.report.known)
        self.authenticator = PasswordAuthenticator(loop, ground.broker.users, self.runner.run)

    def start(self) -> None:
        """Start the threads, and connect runner, upkeep and ending."""
        self.runner.observe(self.upkeep)
        self._ground.ending.watch(self.runner)
        self.threads.start()
        self.runner.now()

    async def sync_now_and_then(self) -> None:
        """Sync unsynced writes every `sync_interval_ms`, for `sync = "interval"`."""
        while True:
            await asyncio.sleep(self._ground.settings.sync_interval_ms / 1000)
            if self._unsynced:
                self._unsynced = False
                self.threads.sync.submit(self._sync_files)

    def hold_files(self, on: bool) -> asyncio.Future[None]:
        """Prevent or allow the removal of checkpoints' files, in the thread that removes them."""
        return self.runner.in_sync_thread(lambda: self.upkeep.hold_files(on))

    def stop(self) -> None:
        """Finish the submitted work and end the threads."""
        self.threads.stop()
        self.authenticator.stop()

    def abandon(self) -> None:
        """Stop running effects, end the threads, and close the files without syncing them."""
        self.runner.fail()
        self.stop()
        self._files.close()
        self._ground.chunks.close()

    def close_files(self) -> None:
        """Sync writes that the setting `sync` has left unsynced, and close the files."""
        try:
            self._files.sync()
            self._files.close()
            self._ground.chunks.close()
        except StorageFailure as failure:
            self._ground.ending.failed(failure)

    # -- in the sync thread ------------------------------------------------------------------------

    def _write_group(self, group: JournalGroup) -> None:
        """Write a group to the journal, and sync it if the setting `sync` is `always`."""
        began = time.monotonic_ns()
        self._files.append(group)
        self._io.wrote(group.records, group.size, time.monotonic_ns() - began)
        self.space.wrote(int(group.size))
        if self._sync_always:
            self._sync_group()
        else:
            self._unsynced = True

    def _sync_group(self) -> None:
        began = time.monotonic_ns()
        self._files.sync()
        self._io.synced(time.monotonic_ns() - began)

    def _sync_files(self) -> Callable[[], None]:
        """Sync the journal, then run the core's effects in the loop."""
        self._sync_group()
        return self.runner.run
