"""The backups that clients make over HTTP: what each may read, how far it is, and when it ends.

A backup begins with a look at the data directory, from when on no file is removed.  Its client
reads the files that were there, as long as they were then, piece by piece and again where a
connection broke.  It ends when the client says so, when an administrator does, or when nothing was
read for `BACKUP_SILENCE_SECONDS_MAX`: a client that is gone must not fill the disk.

Invariants: a path is one of those that the look found, and never what a client makes of it; there
are `BACKUPS_MAX` backups at most; each file is let go of once, however its backup ends.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Literal

from xxhash import xxh3_128

from leveret.clock import Clock
from leveret.limits import BACKUP_PIECE_BYTES, BACKUP_SILENCE_SECONDS_MAX, BACKUPS_MAX
from leveret.management.alarm import Alarm
from leveret.management.backup.pace import Pace
from leveret.management.backup.source import FileSource, Listed

#: Who may make one over TCP: administrators over TLS or from the broker's machine, over any
#: connection, or nobody.
Allowed = Literal["secure", "any", "off"]

Log = Callable[[str, str], None]


class NoPlace(Exception):
    """There are as many backups as there may be."""


class Unreadable(Exception):
    """The data directory cannot be read."""


class _Digest:
    """The checksum of a file that is sent from its beginning on, maybe parts of it repeatedly."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._hash = xxh3_128()
        self._end = 0

    def add(self, at: int, data: bytes) -> None:
        """Hear what was read at a position; what was heard before counts once."""
        if at <= self._end < at + len(data):
            self._hash.update(data[self._end - at :])
            self._end = at + len(data)

    @property
    def value(self) -> str:
        """The checksum of the whole file; empty until all of it was sent."""
        return self._hash.hexdigest() if self._end == self._size else ""


class Backup:
    """One backup; `over` once its files are let go of."""

    def __init__(
        self, name: str, who: str, found: Listed, time_ms: int, group: int, heard_ms: int
    ) -> None:
        #: Its name in paths.
        self.id: Final = name
        self.who: Final = who
        self.uuid: Final = found.uuid
        self.files: Final = found.files
        self.time_ms: Final = time_ms
        #: The newest group of the journal that was durable by then.
        self.durable_group: Final = group
        self.bytes: Final = sum(found.files.values())
        #: All bytes that were sent, those of repeated pieces too.
        self.sent = 0
        self.over = False
        self.heard_ms = heard_ms
        self._digests: Final = {path: _Digest(size) for path, size in found.files.items()}
        self.alarm: Alarm | None = None

    def sends(self, path: str, at: int, data: bytes) -> None:
        """Hear that a piece of a file is sent."""
        self._digests[path].add(at, data)
        self.sent += len(data)

    def digest(self, path: str) -> str:
        """Return the checksum of a file, empty until all of it was sent."""
        return self._digests[path].value


class Backups:
    """The backups of one broker."""

    def __init__(
        self,
        source: FileSource,
        durable: Callable[[], Awaitable[int]],
        clock: Clock,
        log: Log,
        allowed: Allowed = "secure",
        is_local: Callable[[str], bool] = lambda _address: False,
        most: int = BACKUPS_MAX,
        silence_seconds: float = BACKUP_SILENCE_SECONDS_MAX,
    ) -> None:
        """`durable` returns the newest group of the journal once all that was recorded is synced.

        `is_local` tells whether an address is of the broker's own machine; `most` is how many there
        may be at once, and after `silence_seconds` without a reader one ends.
        """
        self.allowed: Final[Allowed] = allowed
        self.is_local: Final = is_local
        self.by_id: Final[dict[str, Backup]] = {}
        self._source = source
        self._durable = durable
        self._clock = clock
        self._log = log
        self._pace = Pace()
        self._most = most
        self._silence_seconds = silence_seconds
        self._beginning = 0

    async def begin(self, who: str) -> Backup:
        """Begin a backup of all that was recorded by now; `who` is for the log and for lists.

        Raises: NoPlace; Unreadable.
        """
        if len(self.by_id) + self._beginning >= self._most:
            raise NoPlace(f"{self._most} backups are being made, which is the limit")
        self._beginning += 1
        try:
            await self._source.hold()
            group = await self._durable()
            found = await self._source.look()
            if found is None:
                raise Unreadable("the data directory cannot be read; see leveret store check")
        except BaseException:
            self._source.release()
            raise
        finally:
            self._beginning -= 1
        # Nobody asks for that of a broker before a restart.
        name, now = secrets.token_hex(16), self._clock
        backup = Backup(name, who, found, int(now.wall_ms()), group, int(now.monotonic_ms()))
        self.by_id[backup.id] = backup
        self._watch(backup, self._silence_seconds)
        self._log("info", f"backup begins: {len(backup.files)} files, {backup.bytes} bytes, {who}")
        return backup

    def find(self, name: str) -> Backup | None:
        """Return the backup of an id, which is not silent by this; None for one that is over."""
        backup = self.by_id.get(name)
        if backup is not None:
            backup.heard_ms = int(self._clock.monotonic_ms())
        return backup

    def end(self, backup: Backup, why: str) -> None:
        """Let go of a backup's files; no effect for one that is over."""
        if backup.over:
            return
        backup.over = True
        del self.by_id[backup.id]
        if backup.alarm is not None:
            backup.alarm.cancel()
        self._source.release()
        sent = f"{backup.sent} bytes sent of {backup.bytes}"
        self._log("info", f"backup ends: {why}; {sent}, {backup.who}")

    def close(self) -> None:
        """End all of them."""
        for backup in list(self.by_id.values()):
            self.end(backup, "the broker stops")

    async def send(
        self, backup: Backup, path: str, at: int, write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """Have a file written from a position on, as long as it was at the beginning.

        Raises: ConnectionError: it cannot be read, or the backup is over.
        """
        size = backup.files[path]
        while at < size:
            count = min(size - at, BACKUP_PIECE_BYTES)
            wait = self._pace.wait_for(count, asyncio.get_running_loop().time())
            if wait > 0:
                await asyncio.sleep(wait)
            data = await self._source.read(path, at, count)
            if backup.over:
                raise ConnectionResetError("the backup is over")
            if not data:
                self._log("warning", f"backup: {path} cannot be read from byte {at} on")
                raise ConnectionResetError(f"{path} cannot be read")
            backup.sends(path, at, data)
            await write(data)
            # Not before the peer took what was sent earlier: one that reads nothing is silent.
            backup.heard_ms = int(self._clock.monotonic_ms())
            at += len(data)

    def _watch(self, backup: Backup, seconds: float) -> None:
        backup.alarm = Alarm(self._clock, seconds, partial(self._judge, backup))

    def _judge(self, backup: Backup) -> None:
        """End a backup whose client has been silent for too long."""
        silent_ms = int(self._clock.monotonic_ms()) - backup.heard_ms
        left = self._silence_seconds - silent_ms / 1000
        if left > 0:
            self._watch(backup, left)
        else:
            self.end(backup, f"nothing was read for {self._silence_seconds} s")
