"""Rebuilds the deduplication windows of queues after a restart.

A checkpoint's records contain the windows of that time.  Keys of later messages are learned from
the messages replayed from the journal: for the header in a queue's arguments, and for the header of
each policy, which may apply to any queue.  Keys of headers that turn out to be irrelevant are
dropped.

If a value is remembered only while its message is queued, the last message with each value counts.
An earlier one must have left the queue, because otherwise the later one would have been dropped.

Invariant: no window is larger than an argument or a policy allows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from leveret.broker.attributes.settings import QUEUED
from leveret.broker.queue.deduplication import Deduplication, QueuedKeys, key_of, read_keys
from leveret.limits import DEDUPLICATION_KEYS, DEDUPLICATION_KEYS_MAX
from leveret.message import Message

if TYPE_CHECKING:
    from leveret.broker.queue.classic import ClassicQueue

#: The flag of the property `headers` in the first byte of the property flags.
_HEADERS_FLAG = 0x20


def _size(value: object) -> int:
    return value if isinstance(value, int) else DEDUPLICATION_KEYS


@final
class LearnedKeys:
    """The learned windows of all queues."""

    def __init__(self) -> None:
        #: The headers in policies, with the largest window of any policy.
        self._by_policy: dict[str, int] = {}
        #: The header and the window in a queue's own arguments.
        self._by_queue: dict[i64, tuple[str, int]] = {}
        self._windows: dict[i64, dict[str, Deduplication]] = {}
        #: By queue and header: the newest sequence of each key; and the headers that need it.
        self._queued: dict[i64, dict[str, dict[bytes, int]]] = {}
        self._queued_headers: set[str] = set()
        self._queued_by_policy = False

    def queue_defined(self, queue_id: i64, arguments: dict[str, object]) -> None:
        """Record a queue's arguments."""
        header = arguments.get("x-deduplication-header")
        if isinstance(header, str):
            size = _size(arguments.get("x-deduplication-window-size"))
            self._by_queue[queue_id] = (header, size)
            if arguments.get("x-deduplication-scope") == QUEUED:
                self._queued_headers.add(header)

    def policy_defined(self, policy: dict[str, object]) -> None:
        """Record a policy."""
        header = policy.get("deduplication-header")
        if isinstance(header, str):
            size = _size(policy.get("deduplication-window-size"))
            self._by_policy[header] = max(self._by_policy.get(header, 0), size)
        if policy.get("deduplication-scope") == QUEUED:
            self._queued_by_policy = True

    def window_defined(self, queue_id: i64, header: object, keys: object) -> None:
        """Add a part of a window from a checkpoint."""
        if isinstance(header, str) and isinstance(keys, bytes):
            window = self._window(queue_id, header, DEDUPLICATION_KEYS_MAX)
            for time_ms, key in read_keys(keys):
                window.learn(key, time_ms)

    def queued_defined(self, queue_id: i64, header: object, keys: object) -> None:
        """Add some keys of queued messages from a checkpoint."""
        if isinstance(header, str) and isinstance(keys, bytes):
            known = self._queued.setdefault(queue_id, {}).setdefault(header, {})
            for sequence, key in read_keys(keys):
                known[key] = sequence

    def published(self, message: Message, targets: list[tuple[int, int]]) -> None:
        """Add the keys of a message in the journal."""
        if not self._by_policy and not self._by_queue:
            return
        if message.properties[0] & _HEADERS_FLAG == 0:
            return
        for number, sequence in targets:
            queue_id: i64 = number
            own = self._by_queue.get(queue_id)
            if own is not None:
                self._learn(queue_id, sequence, message, own[0], own[1])
            for header, size in self._by_policy.items():
                if own is None or own[0] != header:
                    self._learn(queue_id, sequence, message, header, size)

    def _learn(
        self, queue_id: i64, sequence: int, message: Message, header: str, size: int
    ) -> None:
        key = key_of(message, header)
        if not key:
            return
        self._window(queue_id, header, size).learn(key, message.timestamp_ms)
        if self._queued_by_policy or header in self._queued_headers:
            self._queued.setdefault(queue_id, {}).setdefault(header, {})[key] = sequence

    def _window(self, queue_id: i64, header: str, size: int) -> Deduplication:
        windows = self._windows.setdefault(queue_id, {})
        window = windows.get(header)
        if window is None:
            window = Deduplication(header, size, -1)
            windows[header] = window
        return window

    def give(self, queue_id: i64, window: Deduplication) -> None:
        """Add the learned keys to a queue's window."""
        learned = self._windows.pop(queue_id, {}).get(window.header)
        if learned is not None:
            for time_ms, key in learned.order:
                window.learn(key, time_ms)

    def give_queued(self, queue: ClassicQueue, keys: QueuedKeys) -> None:
        """Add the learned keys of a queue's existing messages to `keys`."""
        learned = self._queued.pop(queue.queue_id, {}).get(keys.header, {})
        for key, number in learned.items():
            sequence: i64 = number
            if queue.ready.has(sequence) or queue.stored.holds(sequence):
                keys.note(key, sequence, True)
        for item in queue.ready.waiting():
            keys.came_back(item.sequence, item.message)
