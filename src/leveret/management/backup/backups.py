"""The backups that clients make over HTTP: their files, their progress, and their end.

A backup begins with a list of the files in the data directory, which are not removed until it ends.
The client reads each file up to its size in the list, and may read it again after a broken
connection.  The backup ends when the client or an administrator ends it, or when nothing was read
for `BACKUP_SILENCE_SECONDS_MAX`, so that a client that crashed does not fill the disk.

Invariants: only listed paths are read, never a path made by a client; there are at most
`BACKUPS_MAX` backups; each backup releases its files exactly once, however it ends.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, Literal

from xxhash import xxh3_128

from leveret.clock import Clock
from leveret.limits import BACKUP_SILENCE_SECONDS_MAX, BACKUPS_MAX
from leveret.management.alarm import Alarm
from leveret.management.backup.source import FileSource, Listed

#: The size of the pieces in which a file is read and sent; other work runs between pieces.
BACKUP_PIECE_BYTES: Final = 131_072

#: The total send rate of all backups.  A GB over TLS takes 3.3 s of a core (measured: read, encrypt
#: and send), so backups take at most a tenth of a core from the broker's clients.
_BYTES_PER_SECOND_MAX: Final = 33_554_432


#: Access to backups over TCP for administrators: over TLS or from the broker's machine, over any
#: connection, or not at all.
Allowed = Literal["secure", "any", "off"]

Log = Callable[[str, str], None]


class NoPlace(Exception):
    """The maximum number of backups is already in progress."""


class Unreadable(Exception):
    """The data directory cannot be read."""


class Pace:
    """Limits the send rate of all backups together, so that they do not delay the broker's clients.

    Unused capacity does not accumulate.
    """

    def __init__(self, bytes_per_second: int = _BYTES_PER_SECOND_MAX) -> None:
        self._bytes_per_second = bytes_per_second
        #: The time from which the next piece may be sent, on the clock of the caller.
        self._free = 0.0

    def wait_for(self, size: int, now: float) -> float:
        """Return how many seconds to wait before a piece of `size` bytes is sent."""
        begin = max(self._free, now)
        self._free = begin + size / self._bytes_per_second
        return begin - now


class _Digest:
    """Computes the checksum of a file sent in order, parts of which may be sent repeatedly."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._hash = xxh3_128()
        self._end = 0

    def add(self, at: int, data: bytes) -> None:
        """Add data from a position in the file; repeated bytes count once."""
        if at <= self._end < at + len(data):
            self._hash.update(data[self._end - at :])
            self._end = at + len(data)

    @property
    def value(self) -> str:
        """The checksum of the whole file, or an empty string until it was sent completely."""
        return self._hash.hexdigest() if self._end == self._size else ""


class Backup:
    """One backup; `over` is true once its files are released."""

    def __init__(
        self, name: str, who: str, found: Listed, time_ms: int, group: int, heard_ms: int
    ) -> None:
        #: The id of the backup in paths of the API.
        self.id: Final = name
        self.who: Final = who
        self.uuid: Final = found.uuid
        self.files: Final = found.files
        self.time_ms: Final = time_ms
        #: The newest journal group that was durable when the files were listed.
        self.durable_group: Final = group
        self.bytes: Final = sum(found.files.values())
        #: The number of bytes sent, including repeated pieces.
        self.sent = 0
        self.over = False
        self.heard_ms = heard_ms
        self._digests: Final = {path: _Digest(size) for path, size in found.files.items()}
        self.alarm: Alarm | None = None

    def sends(self, path: str, at: int, data: bytes) -> None:
        """Record that a piece of a file is sent."""
        self._digests[path].add(at, data)
        self.sent += len(data)

    def digest(self, path: str) -> str:
        """Return the checksum of a file, or an empty string until it was sent completely."""
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
        """Create the manager of backups.

        `durable` returns the newest journal group once everything recorded is synced.  `is_local`
        returns whether an address belongs to the broker's own machine.  `most` is the maximum
        number of backups, and a backup ends after `silence_seconds` without a read.
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
        """Begin a backup of everything recorded so far; `who` is shown in the log and in lists.

        Raises: NoPlace; Unreadable.
        """
        if len(self.by_id) + self._beginning >= self._most:
            raise NoPlace(f"{self._most} backups are in progress, which is the limit")
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
        # Random, so that an id from before a restart is not valid.
        name, now = secrets.token_hex(16), self._clock
        backup = Backup(name, who, found, int(now.wall_ms()), group, int(now.monotonic_ms()))
        self.by_id[backup.id] = backup
        self._watch(backup, self._silence_seconds)
        self._log("info", f"backup begins: {len(backup.files)} files, {backup.bytes} bytes, {who}")
        return backup

    def find(self, name: str) -> Backup | None:
        """Return the backup with an id and restart its timeout, or return None if it is over."""
        backup = self.by_id.get(name)
        if backup is not None:
            backup.heard_ms = int(self._clock.monotonic_ms())
        return backup

    def end(self, backup: Backup, why: str) -> None:
        """End a backup and release its files; no effect if it is over."""
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
        """End all backups."""
        for backup in list(self.by_id.values()):
            self.end(backup, "the broker stops")

    async def send(
        self, backup: Backup, path: str, at: int, write: Callable[[bytes], Awaitable[None]]
    ) -> None:
        """Send a file from a position up to its size at the beginning of the backup.

        Raises: ConnectionError if the file cannot be read or the backup is over.
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
            # Only after `write`, which waits for the peer: a peer that does not read is silent.
            backup.heard_ms = int(self._clock.monotonic_ms())
            at += len(data)

    def _watch(self, backup: Backup, seconds: float) -> None:
        backup.alarm = Alarm(self._clock, seconds, partial(self._judge, backup))

    def _judge(self, backup: Backup) -> None:
        """End a backup if its client has been silent for too long."""
        silent_ms = int(self._clock.monotonic_ms()) - backup.heard_ms
        left = self._silence_seconds - silent_ms / 1000
        if left > 0:
            self._watch(backup, left)
        else:
            self.end(backup, f"nothing was read for {self._silence_seconds} s")
