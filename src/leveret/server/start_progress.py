"""Logs the progress of a long start every two seconds, and nothing on a quick start.

It logs lines instead of a progress bar, because the log is often written to a journal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.store.disk import Disk, StorageFailure
from leveret.store.format import JOURNAL_DIR, STATE_DIR
from leveret.store.journal.files import journal_number
from leveret.store.recovery.recovery import StoreRecovery
from leveret.store.snapshot import state_generation

#: The time between two lines, and before the first one.
LINE_MS: Final = 2000

_MIB: Final = 1024 * 1024

#: Logs a message, with figures by name.
Say = Callable[..., object]


class StartProgress:
    """Logs the progress of one recovery; call `look` after each of its steps."""

    def __init__(
        self, recovery: StoreRecovery, disk: Disk, monotonic_ms: Callable[[], int], say: Say
    ) -> None:
        self._recovery = recovery
        self._disk = disk
        self._monotonic_ms = monotonic_ms
        self._say = say
        self._began_ms = self._said_ms = monotonic_ms()
        #: Whether any line was logged.
        self.spoke = False

    def look(self) -> None:
        """Log the progress, if the last line is old enough."""
        now_ms = self._monotonic_ms()
        if now_ms - self._said_ms < LINE_MS:
            return
        self._said_ms = now_ms
        self.spoke = True
        recovery = self._recovery
        total = self._total()
        done = min(int(recovery.bytes_read), total)
        passed_ms = now_ms - self._began_ms
        figures: dict[str, object] = {
            "done": f"{done // _MIB} of {total // _MIB} MiB",
            "percent": 100 * done // total if total else 0,
            "records": int(recovery.records_replayed),
        }
        if 0 < done < total:
            figures["seconds_left"] = passed_ms * (total - done) // done // 1000
        self._say("recovering", **figures)

    def end(self) -> None:
        """Log the end of reading and the rebuilding of queues, if `look` has logged a line."""
        if self.spoke:
            records = int(self._recovery.records_replayed)
            self._say("recovered the records, rebuilding the queues", records=records)

    def _total(self) -> int:
        """Return the number of bytes to read, as far as it is known."""
        needed = int(self._recovery.report.head.journal_file)
        total = 0
        for name in self._names(JOURNAL_DIR):
            if journal_number(name) >= needed:
                total += self._size(f"{JOURNAL_DIR}/{name}")
        snapshots = [name for name in self._names(STATE_DIR) if state_generation(name) >= 0]
        # A snapshot is read twice: checked first, then loaded.
        return total + sum(2 * self._size(f"{STATE_DIR}/{name}") for name in snapshots[-1:])

    def _names(self, folder: str) -> list[str]:
        try:
            return self._disk.list(folder)
        except StorageFailure:
            return []

    def _size(self, path: str) -> int:
        try:
            file = self._disk.open(path)
        except StorageFailure:
            return 0
        size = file.size()
        file.close()
        return size
