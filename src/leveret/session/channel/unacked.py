"""The deliveries of a channel that wait for their ack, by delivery tag.

Tags grow, and most acks come in the order of the deliveries.  A list with a moving head serves
that case in a few steps; an ack out of order is found by bisection, leaves its place marked, and
the list is packed when half of it is marked.

Invariant: the tags in the list grow strictly; `count` is the number of those not settled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64, mypyc_attr

if TYPE_CHECKING:
    from leveret.broker.queue.consumer import Consumer, Source
    from leveret.message import Message

#: Settled places that are worth packing the list for.
_PACK_AT: Final = 1024
#: Settled deliveries at the head that are freed in any case: half a million at once take 0.2 s.
_FREE_AT: Final = 16_384


@final
@mypyc_attr(acyclic=True)
class Unacked:
    """One delivery: its tag, where it came from, and how often it was handed out before."""

    def __init__(
        self,
        tag: i64,
        queue: Source,
        consumer: Consumer | None,
        message: Message,
        sequence: i64,
        count: i64,
    ) -> None:
        self.tag: i64 = tag
        self.queue = queue
        self.consumer = consumer
        self.message = message
        self.sequence: i64 = sequence
        self.count: i64 = count
        self.settled = False


@final
class UnackedList:
    """The deliveries of one channel."""

    def __init__(self) -> None:
        self.items: list[Unacked] = []
        self.head: i64 = 0
        self.count: i64 = 0

    def add(self, unacked: Unacked) -> None:
        """Add the newest delivery."""
        self.items.append(unacked)
        self.count += 1

    def oldest(self) -> Unacked | None:
        """Return the oldest delivery that is not settled."""
        return self.items[self.head] if self.count > 0 else None

    def take(self, tag: i64) -> Unacked | None:
        """Settle and return the delivery with `tag`; None where there is none."""
        items = self.items
        low: i64 = self.head
        high: i64 = len(items) - 1
        while low <= high:
            middle: i64 = low if items[low].tag == tag else (low + high) // 2
            unacked = items[middle]
            if unacked.tag == tag:
                if unacked.settled:
                    return None
                unacked.settled = True
                self.count -= 1
                self._pack()
                return unacked
            if unacked.tag < tag:
                low = middle + 1
            else:
                high = middle - 1
        return None

    def has_up_to(self, tag: i64) -> bool:
        """Return whether there is a delivery up to `tag`."""
        return self.count > 0 and self.items[self.head].tag <= tag

    def take_up_to(self, tag: i64, limit: i64) -> list[Unacked]:
        """Settle and return the deliveries up to `tag`, at most `limit`, the oldest first."""
        taken: list[Unacked] = []
        items = self.items
        place: i64 = self.head
        size: i64 = min(len(items), place + limit)
        while place < size:
            unacked = items[place]
            if unacked.tag > tag:
                break
            if not unacked.settled:
                unacked.settled = True
                taken.append(unacked)
            place += 1
        self.head = place
        self.count -= len(taken)
        self._pack()
        return taken

    def restore(self, returned: list[Unacked]) -> None:
        """Put deliveries back that a transaction had settled and rolled back.

        Most of them are the oldest, which have left the list, or are in it still: of very many
        others none is touched.
        """
        if not returned:
            return
        items = self.items
        gone: list[Unacked] = []
        for unacked in sorted(returned, key=_tag):
            place = self._place_of(unacked.tag)
            if place == len(items) or items[place] is not unacked:
                gone.append(unacked)
        for unacked in returned:
            unacked.settled = False
        self.count += len(returned)
        head = self.head
        if not gone:
            return
        if head == len(items) or gone[-1].tag < items[head].tag:
            items[:head] = gone
        else:
            # What was settled before does no harm among them.
            self.items = sorted(items[head:] + gone, key=_tag)
        self.head = 0

    def _place_of(self, tag: i64) -> i64:
        """Return the first place from the head on whose tag is not below `tag`."""
        items = self.items
        low: i64 = self.head
        high: i64 = len(items)
        while low < high:
            middle: i64 = (low + high) // 2
            if items[middle].tag < tag:
                low = middle + 1
            else:
                high = middle
        return low

    def _pack(self) -> None:
        items = self.items
        size: i64 = len(items)
        head = self.head
        while head < size and items[head].settled:
            head += 1
        if head == size:
            items.clear()
            head = 0
        elif head >= _PACK_AT and (head * 2 >= size or head >= _FREE_AT):
            del items[:head]
            head = 0
        elif size - head >= _PACK_AT and self.count * 2 < size - head:
            self.items = [unacked for unacked in items[head:] if not unacked.settled]
            head = 0
        self.head = head


def _tag(unacked: Unacked) -> int:
    return unacked.tag
