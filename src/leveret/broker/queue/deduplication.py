"""Message deduplication: a queue drops a message that it has recently taken.

A queue with `x-deduplication-header` remembers the values of that header, up to a maximum number
and age.  It drops a message with a remembered value, but its publisher gets the same answer as if
it had been taken.  A message without the header is never a duplicate.

The window survives a crash.  Checkpoints contain it, and the keys of messages that the journal
replays are added again.  A key that was only in memory when the broker died is lost together with
its message, which counts as new when it is sent again.

With `x-deduplication-scope` `queued` a value is remembered for as long as its message is in the
queue, waiting or unacked (`QueuedKeys`).  Once the message is acked, dead-lettered or purged, the
value counts as new.

Invariants: `order` lists every key with the time it was noted, the oldest first; an entry is stale
if its time differs from the key's time in `times`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.attributes.settings import QueueSettings
from leveret.broker.scheduler.accounts import Accounts, MarkAccount
from leveret.large_dict import LargeDict
from leveret.limits import DEDUPLICATION_KEYS, SLICE_MESSAGES
from leveret.message import Message
from leveret.routing.headers import normal_value
from leveret.wire.buffer import BytesWriter, read_i64_be, write_i64_be
from leveret.wire.properties import property_headers

#: The memory of a deduplication entry, including the key.
KEY_BYTES: Final = 260


#: A longer key is replaced by its hash, which limits the memory of a window.
_KEY_BYTES_MAX: Final = 32

#: The number of keys in one record of a checkpoint.
KEYS_PER_RECORD: Final = 1024


def key_of(message: Message, header: str) -> bytes:
    """Return the key from a message's `header`, or an empty key without the header."""
    headers = property_headers(message.properties)
    if headers is None or header not in headers:
        return b""
    value = normal_value(headers[header])
    if isinstance(value, str):
        key = b"s" + value.encode("utf-8", "surrogateescape")
    else:
        key = b"v" + repr(value).encode("utf-8", "surrogateescape")
    if len(key) > _KEY_BYTES_MAX:
        return b"h" + blake2b(key, digest_size=_KEY_BYTES_MAX - 1).digest()
    return key


@final
class Deduplication:
    """The window of one queue.  `size_max` is in keys; an `age_ms` of -1 means no limit."""

    def __init__(self, header: str, size_max: i64, age_ms: i64) -> None:
        self.header = header
        self.size_max: i64 = size_max
        self.age_ms: i64 = age_ms
        self.times: LargeDict[bytes, int] = LargeDict()
        self.order: deque[tuple[int, bytes]] = deque()
        #: The account that the keys are booked to, or None while they are loaded at startup.
        self.account: MarkAccount | None = None

    def has(self, key: bytes, now_ms: i64) -> bool:
        """Return whether `key` is remembered."""
        self._forget_old(now_ms)
        time = self.times.get(key)
        return time is not None and not self._is_old(time, now_ms)

    def note(self, key: bytes, now_ms: i64) -> None:
        """Remember `key`; forget the oldest keys if there are too many."""
        self.times[key] = int(now_ms)
        self.order.append((int(now_ms), key))
        account = self.account
        if account is not None:
            account.book(KEY_BYTES)
            if not account.has_room() and len(self.order) > 1:
                self._forget_first()
        while len(self.times) > self.size_max:
            self._forget_first()

    def learn(self, key: bytes, time_ms: i64) -> None:
        """Remember a key that was noted before a restart."""
        if key not in self.times:
            self.note(key, time_ms)

    def _is_old(self, time: i64, now_ms: i64) -> bool:
        return 0 <= self.age_ms <= now_ms - time

    def _forget_old(self, now_ms: i64) -> None:
        """Forget some of the old entries.  The others are ignored because of their time."""
        if self.age_ms < 0:
            return
        forgotten: i64 = 0
        while forgotten < SLICE_MESSAGES and self.order:
            if not self._is_old(self.order[0][0], now_ms):
                return
            self._forget_first()
            forgotten += 1

    def _forget_first(self) -> None:
        """Forget the oldest entry, and its key unless it was noted again."""
        time, key = self.order.popleft()
        if self.account is not None:
            self.account.book(-KEY_BYTES)
        if self.times.get(key) == time:
            del self.times[key]

    # -- checkpoints ------------------------------------------------------------------------------

    def definitions(self, queue_id: i64) -> Iterator[dict[str, object]]:
        """Yield the window as checkpoint records; it may change while they are read."""
        entries = list(self.order)
        return _key_records({"id": int(queue_id), "header": self.header}, "keys", entries)


@final
class QueuedKeys:
    """The keys of the messages in one queue, with the sequences of the messages."""

    def __init__(self, header: str) -> None:
        self.header = header
        self.sequences: LargeDict[bytes, int] = LargeDict()
        #: The sequences of unacked messages that are not in the queue's `out`.
        self.handed: LargeDict[int, bool] = LargeDict()
        #: The keys of messages that do not survive a restart, and must not be in a checkpoint.
        self.transient: LargeDict[bytes, bool] = LargeDict()
        #: The account that the keys are booked to, or None while the queue is created.
        self.account: MarkAccount | None = None

    def note(self, key: bytes, sequence: i64, persistent: bool) -> None:
        """Remember a key, with the sequence of its message."""
        if self.account is not None and key not in self.sequences:
            self.account.book(KEY_BYTES)
        self.sequences[key] = int(sequence)
        if not persistent:
            self.transient[key] = True

    def forget(self, key: bytes) -> None:
        """Forget a key."""
        del self.sequences[key]
        self.transient.pop(key)
        if self.account is not None:
            self.account.book(-KEY_BYTES)

    def left(self, sequence: i64, message: Message) -> None:
        """Forget the key of a message that left the queue."""
        key = key_of(message, self.header)
        if key and self.sequences.get(key) == sequence:
            self.forget(key)

    def came_back(self, sequence: i64, message: Message) -> None:
        """Remember the key of a message that returned to the queue."""
        key = key_of(message, self.header)
        if key and key not in self.sequences:
            self.note(key, sequence, message.persistent)

    def definitions(self, queue_id: i64) -> Iterator[dict[str, object]]:
        """Yield the keys as checkpoint records; they may change while these are read."""
        lost = self.transient
        entries = [(number, key) for key, number in self.sequences.items() if key not in lost]
        return _key_records({"id": int(queue_id), "header": self.header}, "queued", entries)


def _key_records(
    record: dict[str, object], field: str, entries: list[tuple[int, bytes]]
) -> Iterator[dict[str, object]]:
    """Yield copies of `record`, each with some of the entries (number and key) in `field`."""
    for start in range(0, len(entries), KEYS_PER_RECORD):
        w = BytesWriter()
        for number, key in entries[start : start + KEYS_PER_RECORD]:
            write_i64_be(w, number)
            w.append(len(key))
            w.write(key)
        yield record | {field: w.getvalue()}


def read_keys(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the entries (time or sequence, and key) of one record from `definitions`."""
    size: i64 = len(data)
    position: i64 = 0
    while position + 9 <= size:
        end: i64 = position + 9 + i64(data[position + 8])
        yield int(read_i64_be(data, position)), data[position + 9 : end]
        position = end


def replace_keys(
    before: Deduplication | QueuedKeys | None,
    now: Deduplication | QueuedKeys | None,
    accounts: Accounts,
) -> None:
    """Book the keys of `now` in place of those of `before`, which may be the same object."""
    if before is not now and before is not None and before.account is not None:
        before.account.end()
    if now is not None and now.account is None:
        now.account = MarkAccount(accounts)


def window_of(settings: QueueSettings, current: Deduplication | None) -> Deduplication | None:
    """Return the window for the settings; reuse `current` if the header is the same."""
    header = settings.deduplication_header
    if header is None or settings.deduplication_queued:
        return None
    size = settings.deduplication_size
    if size < 0:
        size = DEDUPLICATION_KEYS
    if current is None or current.header != header:
        return Deduplication(header, size, settings.deduplication_age_ms)
    current.size_max = size
    current.age_ms = settings.deduplication_age_ms
    return current


def queued_keys_of(settings: QueueSettings, current: QueuedKeys | None) -> QueuedKeys | None:
    """Return the keys of queued messages for the settings; reuse `current` for the same header."""
    header = settings.deduplication_header
    if header is None or not settings.deduplication_queued:
        return None
    return current if current is not None and current.header == header else QueuedKeys(header)
