"""Browsing: reading what waits in a queue without taking it.

Nothing that is read here is taken, counted as delivered or marked as redelivered.  There are two
ways in: `browse` gives pages to management, and a consumer with the argument `x-browse` is given
what waits, once, and ends with a basic.cancel of the broker's (`Browser`).

A look at a queue goes through the sequences that it had when it began: what comes later is not
seen, what is taken meanwhile is passed over.

Invariant: a queue knows nothing of those who browse it.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.backlog.window import Returned
from leveret.broker.classic.classic import ClassicQueue
from leveret.broker.classic.waiting import WaitingQueue
from leveret.broker.queue.consumer import Consumer, Source
from leveret.broker.scheduler.costs import LOOKS_PER_COST
from leveret.broker.values.arguments import NUMBER_MAX
from leveret.broker.values.queue_settings import QueueSettings
from leveret.errors import PreconditionFailed
from leveret.limits import SLICE_MESSAGES, TABLE_BYTES_PER_COST
from leveret.routing.headers import HeadersMatcher
from leveret.routing.topic import TopicTrie
from leveret.wire.properties import property_headers

if TYPE_CHECKING:
    from leveret.message import Message

_FIELDS: Final = ("position", "routing-key", "headers")


@final
class BrowseFilter:
    """What of a queue is wanted.

    `position` is how many waiting messages are passed over first, below 0 how many of the last are
    looked at; `routing_key` is a pattern as of a topic exchange; `headers` are arguments as of a
    binding to a headers exchange, `x-match` with them.
    """

    def __init__(
        self,
        position: i64 = 0,
        routing_key: str | None = None,
        headers: dict[str, object] | None = None,
    ) -> None:
        """Raises: PreconditionFailed (406) for an `x-match` that is none."""
        self.position: i64 = position
        self._trie: TopicTrie | None = None
        if routing_key is not None:
            self._trie = TopicTrie()
            self._trie.insert(routing_key, True)
        self._headers = HeadersMatcher(headers) if headers is not None else None
        #: What the messages that were judged so far have cost.
        self.cost: i64 = 0

    def matches(self, message: Message) -> bool:
        """Return whether a message matches the filter."""
        trie = self._trie
        if trie is not None:
            before = trie.states_visited
            key = message.address.routing_key.decode("utf-8", "surrogateescape")
            found = trie.match(key)
            self.cost += (trie.states_visited - before) // LOOKS_PER_COST
            if not found:
                return False
        matcher = self._headers
        if matcher is None:
            return True
        self.cost += matcher.looks // LOOKS_PER_COST
        self.cost += len(message.properties) // TABLE_BYTES_PER_COST
        return matcher.matches(property_headers(message.properties) or {})


def browse_filter(value: object, where: str) -> BrowseFilter:
    """Return what an argument `x-browse` asks for: `true` for all, or a table.

    Raises: PreconditionFailed (406); `where` names the queue in the error.
    """
    if value is True:
        return BrowseFilter()
    if not isinstance(value, dict):
        raise _invalid(where, "it is true or a table")
    unknown = [name for name in value if name not in _FIELDS]
    if unknown:
        raise _invalid(where, f"there is no '{unknown[0]}' in it")
    position = value.get("position", 0)
    if not isinstance(position, int) or isinstance(position, bool):
        raise _invalid(where, "its position is an integer")
    if abs(position) > NUMBER_MAX:
        raise _invalid(where, f"its position is too great: use -{NUMBER_MAX} to {NUMBER_MAX}")
    routing_key = value.get("routing-key")
    if routing_key is not None and not isinstance(routing_key, str):
        raise _invalid(where, "its routing-key is text")
    headers = value.get("headers")
    if headers is not None and not isinstance(headers, dict):
        raise _invalid(where, "its headers are a table")
    return BrowseFilter(position, routing_key, headers)


def make_browser(queue: Source, value: object, where: str) -> Browser:
    """Return what stands in for `queue` to a consumer with that `x-browse`.

    Raises: PreconditionFailed (406) for what cannot be asked, and of a stream; AccessRefused (403)
    for a staging queue.
    """
    wanted = browse_filter(value, where)
    queue.check_consumed()
    if not isinstance(queue, ClassicQueue):
        raise _invalid(where, "a stream is read by its x-stream-offset")
    return Browser(queue, wanted)


def _invalid(where: str, why: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid arg 'x-browse' for {where}: \"{why}\"")


@final
class Look:
    """One pass over what waited when it began, in the order of the sequences."""

    def __init__(self, queue: WaitingQueue, wanted: BrowseFilter, after: i64 | None = None) -> None:
        self.queue = queue
        self.wanted = wanted
        #: Waiting messages that are passed over one by one.
        self.skip: i64 = 0
        ready = queue.ready
        #: What lies out of order, and behind it each sequence.
        scattered = ready.scattered()
        queue.scheduler.spent += len(scattered)
        begin = ready.first_in_order()
        if after is not None:
            scattered = [sequence for sequence in scattered if sequence > after]
            begin = max(begin, after + 1)
        else:
            waiting = queue.ready_count()
            skip: i64 = wanted.position if wanted.position >= 0 else waiting + wanted.position
            if skip > 0:
                passed: i64 = min(skip, len(scattered))
                del scattered[:passed]
                begin, self.skip = ready.behind(begin, skip - passed)
        self._sequences: Final = chain(scattered, range(int(begin), int(ready.next_sequence())))
        #: The sequence that was looked at last; None before the first one.
        self.last: i64 | None = after
        #: Messages that were looked at, and what it cost to judge them.
        self.looked: i64 = 0
        self.ended = False

    def next(self, limit: i64) -> Returned | None:
        """Return the next message wanted; None at the end, or when it has cost `limit` in all.

        What is passed over by its position counts too.
        """
        while self.looked < limit:
            sequence = next(self._sequences, None)
            if sequence is None:
                self.ended = True
                return None
            self.last = sequence
            self.looked += 1
            returned = self.queue.ready.look(sequence)
            if returned is None:
                continue
            if self.skip > 0:
                self.skip -= 1
                continue
            before = self.wanted.cost
            matches = self.wanted.matches(returned.message)
            self.looked += self.wanted.cost - before
            if matches:
                return returned
        return None


@final
class BrowsePage:
    """Some of what waits; `after` begins the next page, None when this was the last."""

    def __init__(self, items: list[Returned], after: i64 | None) -> None:
        self.items: Final = items
        self.after: Final = after


def browse(
    queue: WaitingQueue, wanted: BrowseFilter, after: i64 | None = None, limit: i64 = 100
) -> BrowsePage:
    """Return up to `limit` waiting messages that are wanted; `after` is the page's before it.

    One call looks at so many messages at most that a page may hold few, and not be the last.
    """
    look = Look(queue, wanted, after)
    items: list[Returned] = []
    while len(items) < limit:
        returned = look.next(SLICE_MESSAGES)
        if returned is None:
            break
        items.append(returned)
    return BrowsePage(items, None if look.ended else look.last)


@final
class Browser(Source):
    """A queue's stand-in for a consumer that browses: its deliveries belong to nobody.

    Acks, rejects and requeues of what it delivered mean nothing but credit for more, as to any
    source that keeps no account.
    """

    def __init__(self, queue: ClassicQueue, wanted: BrowseFilter) -> None:
        super().__init__(queue.core, queue.name, QueueSettings({}))
        self.source = queue
        self.look = Look(queue, wanted)

    def subscribe(self, consumer: Consumer, where: str) -> None:
        """Take the one consumer, which gets messages from the next dispatch on."""
        self.core.scheduler.changes += 1
        self.consumers.append(consumer)
        self.schedule()

    def unsubscribe(self, consumer: Consumer) -> None:
        """Remove the consumer."""
        self.core.scheduler.changes += 1
        self.consumers.clear()

    def dispatch(self, limit: i64) -> bool:
        """Deliver up to `limit` of what waits; end the consumer at the end."""
        if not self.consumers or self.deleted:
            return False
        look = self.look
        look.looked = 0
        more = self._deliver(self.consumers[0], limit)
        self.core.scheduler.spent += look.looked
        return more

    def _deliver(self, consumer: Consumer, limit: i64) -> bool:
        look = self.look
        while look.looked < limit:
            if self.source.deleted:
                self._end(consumer)
                return False
            if not consumer.ready():
                return False
            returned = look.next(limit)
            if returned is None:
                if look.ended:
                    self._end(consumer)
                return not look.ended
            consumer.channel.deliver(consumer, returned.message, returned.sequence, returned.count)
        return True

    def _end(self, consumer: Consumer) -> None:
        """Cancel the consumer: all messages were browsed."""
        self.deleted = True
        self.consumers.clear()
        consumer.cancel()
