"""Browsing: reading the waiting messages of a queue without consuming them.

Browsed messages are not taken, counted as delivered or marked as redelivered.  `browse` returns
pages for the management API.  A consumer with the argument `x-browse` receives each waiting message
once, followed by a basic.cancel from the broker (`Browser`).

A pass covers the messages that are waiting when it starts.  It skips messages that are taken before
it reaches them, and does not include later ones.

Invariant: a queue has no reference to its browsers.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import NUMBER_MAX
from leveret.broker.attributes.settings import QueueSettings
from leveret.broker.backlog.window import RequeuedMessage
from leveret.broker.consumers.consumer import QueueConsumer, Source
from leveret.broker.queue.classic import ClassicQueue
from leveret.broker.queue.waiting import WaitingQueue
from leveret.broker.scheduler.costs import LOOKS_PER_COST
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
    """A filter that selects messages of a queue.

    `position` is the number of waiting messages to skip.  If negative, it is the number of messages
    to read from the end.  `routing_key` is a pattern as for a topic exchange; `headers` are
    arguments as in a binding to a headers exchange, including `x-match`.
    """

    def __init__(
        self,
        position: i64 = 0,
        routing_key: str | None = None,
        headers: dict[str, object] | None = None,
    ) -> None:
        """Raises: PreconditionFailed (406) for an invalid `x-match`."""
        self.position: i64 = position
        self._trie: TopicTrie | None = None
        if routing_key is not None:
            self._trie = TopicTrie()
            self._trie.insert(routing_key, True)
        self._headers = HeadersMatcher(headers) if headers is not None else None
        #: The cost of matching messages so far.
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
    """Return the filter for an argument `x-browse`: `true` for all messages, or a table.

    Raises: PreconditionFailed (406); `where` names the queue in the error.
    """
    if value is True:
        return BrowseFilter()
    if not isinstance(value, dict):
        raise _invalid(where, "must be true or a table")
    unknown = [name for name in value if name not in _FIELDS]
    if unknown:
        raise _invalid(where, f"unknown field '{unknown[0]}'")
    position = value.get("position", 0)
    if not isinstance(position, int) or isinstance(position, bool):
        raise _invalid(where, "position must be an integer")
    if abs(position) > NUMBER_MAX:
        raise _invalid(where, f"position must be from -{NUMBER_MAX} to {NUMBER_MAX}")
    routing_key = value.get("routing-key")
    if routing_key is not None and not isinstance(routing_key, str):
        raise _invalid(where, "routing-key must be a string")
    headers = value.get("headers")
    if headers is not None and not isinstance(headers, dict):
        raise _invalid(where, "headers must be a table")
    return BrowseFilter(position, routing_key, headers)


def make_browser(queue: Source, value: object, where: str) -> Browser:
    """Return the source from which a consumer with the `x-browse` of `value` reads `queue`.

    Raises: PreconditionFailed (406) for an invalid argument, and for a stream; AccessRefused (403)
    for a staging queue.
    """
    wanted = browse_filter(value, where)
    queue.check_consumed()
    if not isinstance(queue, ClassicQueue):
        raise _invalid(where, "use x-stream-offset to read a stream")
    return Browser(queue, wanted)


def _invalid(where: str, why: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid arg 'x-browse' for {where}: \"{why}\"")


@final
class BrowsePass:
    """One pass over the messages waiting when it starts, in the order of their sequences."""

    def __init__(self, queue: WaitingQueue, wanted: BrowseFilter, after: i64 | None = None) -> None:
        self.queue = queue
        self.wanted = wanted
        #: The number of waiting messages to skip one by one.
        self.skip: i64 = 0
        ready = queue.ready
        # Sequences out of order come first.  The others are looked up one by one.
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
        #: The last sequence examined, or None before the first.
        self.last: i64 | None = after
        #: The number of messages examined plus the cost of matching them.
        self.looked: i64 = 0
        self.ended = False

    def next(self, limit: i64) -> RequeuedMessage | None:
        """Return the next matching message, or None at the end or when the cost reaches `limit`.

        Messages skipped by position count too.
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
    """A page of waiting messages.  The next page begins after `after`; None ends the pages."""

    def __init__(self, items: list[RequeuedMessage], after: i64 | None) -> None:
        self.items: Final = items
        self.after: Final = after


def browse(
    queue: WaitingQueue, wanted: BrowseFilter, after: i64 | None = None, limit: i64 = 100
) -> BrowsePage:
    """Return a page of up to `limit` matching messages; `after` is that of the previous page.

    One call examines a limited number of messages, so a short page may not be the last.
    """
    look = BrowsePass(queue, wanted, after)
    items: list[RequeuedMessage] = []
    while len(items) < limit:
        returned = look.next(SLICE_MESSAGES)
        if returned is None:
            break
        items.append(returned)
    return BrowsePage(items, None if look.ended else look.last)


@final
class Browser(Source):
    """The source of one browsing consumer.  Delivered messages stay in the queue.

    Acks, rejects and requeues only allow further deliveries, as for any source that does not track
    its deliveries.
    """

    def __init__(self, queue: ClassicQueue, wanted: BrowseFilter) -> None:
        super().__init__(queue.core, queue.name, QueueSettings({}))
        self.source = queue
        self.look = BrowsePass(queue, wanted)

    def subscribe(self, consumer: QueueConsumer, where: str) -> None:
        """Add the only consumer, which receives messages from the next dispatch on."""
        self.core.scheduler.changes += 1
        self.consumers.append(consumer)
        self.schedule()

    def unsubscribe(self, consumer: QueueConsumer) -> None:
        """Remove the consumer."""
        self.core.scheduler.changes += 1
        self.consumers.clear()

    def dispatch(self, limit: i64) -> bool:
        """Deliver up to `limit` waiting messages; cancel the consumer after the last one."""
        if not self.consumers or self.deleted:
            return False
        look = self.look
        look.looked = 0
        more = self._deliver(self.consumers[0], limit)
        self.core.scheduler.spent += look.looked
        return more

    def _deliver(self, consumer: QueueConsumer, limit: i64) -> bool:
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

    def _end(self, consumer: QueueConsumer) -> None:
        """Cancel the consumer because nothing is left to browse."""
        self.deleted = True
        self.consumers.clear()
        consumer.cancel()
