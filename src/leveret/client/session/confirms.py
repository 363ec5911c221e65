"""The confirms of one channel: unconfirmed publishes, and the outcomes of settled publishes.

Sequences start at 1 with confirm.select and count every publish (behaviour 30: confirm numbering).
A mandatory message is returned before its confirm (behaviour 24: return before ack).  The return
does not contain the sequence, so it is matched with the oldest unconfirmed publish that has the
same exchange, routing key and body.

On a connection with recovery, publishes are stored until they settle (`kept`).  After a loss they
are repeated and the broker counts from 1 again, so its delivery tags are translated to the
application's sequences.

Invariants: a sequence settles once.  All sequences below `_lowest` have settled; of those above,
only the ones in `_early` have.  `waiting` contains the unconfirmed publishes that have a token or
may be returned.  Failures of publishes without a token are stored, up to a limit, until
`take_failure`.  `lost` is True if the channel ended with unconfirmed publishes.  This module is
compiled.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING, Final

from leveret.client.errors import Nacked, Returned
from leveret.client.session.kept import ChannelPublishes
from leveret.errors import PreconditionFailed
from leveret.wire.content.publish_marks import NACKED, RETURNED

if TYPE_CHECKING:
    from leveret.client.errors import PublishFailed
    from leveret.client.events import Token
    from leveret.client.message import ReturnedMessage
    from leveret.client.session.kept import KeptPublishes, SentPiece
    from leveret.wire.content.publish_marks import PublishMarks

#: The maximum number of nacked or returned publishes stored for `take_failure`.
CLIENT_FAILURES_MAX: Final = 1024


#: Identifies a returned message: exchange, routing key and body.
Identity = tuple[str, str, bytes]


class Unconfirmed:
    """An unconfirmed publish that has a `token`, or may be returned (`identity`), or both."""

    __slots__ = ("identity", "returned", "settled", "token")

    def __init__(self, token: Token | None, identity: Identity | None) -> None:
        self.token = token
        self.identity = identity
        self.returned: ReturnedMessage | None = None
        self.settled = False


class PublisherConfirms:
    """The confirms of one channel since confirm.select."""

    def __init__(self) -> None:
        self.last = 0
        self.lost = False
        self.waiting: dict[int, Unconfirmed] = {}
        self._lowest = 1
        self._early: set[int] = set()
        #: This channel's publishes in stored output, and their last sequence.
        self._shares: deque[ChannelPublishes] = deque()
        self._kept_to = 0
        #: The sequences of repeated publishes, indexed by delivery tag - 1; and the difference
        #: between sequence and delivery tag of all later publishes.
        self._resent: list[int] = []
        self._shift = 0
        self._mandatory: dict[Identity, deque[Unconfirmed]] = {}
        self._nacked: list[int] = []
        self._returned: list[ReturnedMessage] = []

    @property
    def unconfirmed(self) -> int:
        """The number of unconfirmed publishes."""
        return self.last + 1 - self._lowest - len(self._early)

    def published(self, token: Token | None, identity: Identity | None) -> int:
        """Count a publish and return its sequence; a mandatory publish has an `identity`."""
        self.last += 1
        if token is None and identity is None:
            return self.last
        entry = Unconfirmed(token, identity)
        self.waiting[self.last] = entry
        if identity is not None:
            self._mandatory.setdefault(identity, deque()).append(entry)
        return self.last

    # -- storing and repeating publishes -----------------------------------------------------------

    @property
    def is_keeping(self) -> bool:
        """Whether `keep` must store new publishes."""
        return self.last > self._kept_to

    def keep(self, piece: SentPiece, number: int) -> None:
        """Store the publishes on channel `number` since the last call, which `piece` contains."""
        self._shares.append(ChannelPublishes(piece, number, self._kept_to + 1, self.last))
        self._kept_to = self.last

    def keep_one(self, kept: KeptPublishes, data: bytes, number: int, sequence: int) -> None:
        """Store one encoded publish."""
        self._shares.append(ChannelPublishes(kept.keep(data), number, sequence, sequence))
        self._kept_to = max(self._kept_to, sequence)

    def is_settled(self, sequence: int) -> bool:
        """Return whether a publish is acked or nacked."""
        return sequence < self._lowest or sequence in self._early

    def send_again(self) -> list[ChannelPublishes]:
        """Prepare for delivery tags that restart at 1; return the publishes to repeat."""
        unsettled = range(self._lowest, self.last + 1)
        self._resent = [number for number in unsettled if number not in self._early]
        self._shift = self.last - len(self._resent)
        self._mandatory.clear()
        for entry in self.waiting.values():
            if entry.identity is not None:
                entry.returned = None
                self._mandatory.setdefault(entry.identity, deque()).append(entry)
        shares = list(self._shares)
        self._shares.clear()
        return shares

    def _sequence(self, number: int) -> int:
        """Return the sequence of the publish with the broker's delivery tag `number`."""
        if number <= len(self._resent):
            return self._resent[number - 1] if number > 0 else number
        return number + self._shift

    def _number(self, sequence: int) -> int:
        """Return the broker's delivery tag for a sequence."""
        index = bisect_left(self._resent, sequence)
        if index < len(self._resent) and self._resent[index] == sequence:
            return index + 1
        return sequence - self._shift

    def settle_marks(self, marks: PublishMarks) -> list[tuple[Token, PublishFailed | None]]:
        """Settle publishes by the broker's report on a lost connection, before `send_again`.

        Returned messages stay unsettled and are published again, so that the application receives
        the return.
        """
        outcomes: list[tuple[Token, PublishFailed | None]] = []
        gaps = deque(marks.gaps)
        for sequence in range(self._lowest, self.last + 1):
            number = self._number(sequence)
            if number > marks.through:
                break
            if number <= marks.floor or self.is_settled(sequence):
                continue
            while gaps and gaps[0][1] < number:
                gaps.popleft()
            kind = gaps[0][2] if gaps and gaps[0][0] <= number else 0
            if kind != RETURNED:
                self._settle_one(sequence, kind != NACKED, outcomes)
        return outcomes

    def returned(self, message: ReturnedMessage) -> bool:
        """Record a returned message; return False if it matches no unconfirmed publish."""
        identity = (message.exchange, message.routing_key, message.body)
        entries = self._mandatory.get(identity)
        if not entries:
            return False
        entries.popleft().returned = message
        self._drop_settled(identity)
        return True

    def settle(
        self, sequence: int, multiple: bool, acked: bool
    ) -> list[tuple[Token, PublishFailed | None]]:
        """Settle publishes after basic.ack or basic.nack; return the resolved tokens with outcomes.

        Publishes that have already settled are ignored.

        Raises: PreconditionFailed (406) for a sequence that was never published.
        """
        if self._shift or self._resent:
            sequence = self._sequence(sequence)
        if sequence > self.last or sequence < 0 or (sequence == 0 and not multiple):
            raise PreconditionFailed(f"unknown delivery tag {sequence}")
        outcomes: list[tuple[Token, PublishFailed | None]] = []
        if multiple:
            self._settle_to(sequence or self.last, acked, outcomes)
        elif not self.is_settled(sequence):
            self._settle_one(sequence, acked, outcomes)
        return outcomes

    def _settle_to(
        self, upper: int, acked: bool, outcomes: list[tuple[Token, PublishFailed | None]]
    ) -> None:
        """Settle all unconfirmed publishes up to `upper`."""
        if upper < self._lowest:
            return
        if self.waiting or not acked:
            for number in range(self._lowest, upper + 1):
                if number not in self._early:
                    self._take_outcome(number, acked, outcomes)
        self._lowest = upper + 1
        if self._early:
            self._early = {number for number in self._early if number > upper}
        self._moved()

    def _settle_one(
        self, sequence: int, acked: bool, outcomes: list[tuple[Token, PublishFailed | None]]
    ) -> None:
        """Settle one unconfirmed publish."""
        self._take_outcome(sequence, acked, outcomes)
        if sequence == self._lowest:
            self._lowest += 1
            self._moved()
            return
        self._early.add(sequence)
        index = bisect_left(self._shares, sequence, key=lambda share: share.last)
        if index < len(self._shares):
            self._shares[index].settled_early()

    def _moved(self) -> None:
        """Advance `_lowest` past early sequences, and release stored output that has settled."""
        while self._lowest in self._early:
            self._early.remove(self._lowest)
            self._lowest += 1
        while self._shares and self._shares[0].last < self._lowest:
            self._shares.popleft().release()

    def _take_outcome(
        self, sequence: int, acked: bool, outcomes: list[tuple[Token, PublishFailed | None]]
    ) -> None:
        """Report the outcome of a publish to its token, or store it for `take_failure`."""
        entry = self.waiting.pop(sequence, None)
        token: Token | None = None
        returned: ReturnedMessage | None = None
        if entry is not None:
            self._forget(entry)
            token, returned = entry.token, entry.returned
        if token is not None:
            failure = None if acked else Nacked([sequence])
            outcomes.append((token, Returned([returned]) if returned is not None else failure))
        elif returned is not None:
            if len(self._returned) < CLIENT_FAILURES_MAX:
                self._returned.append(returned)
        elif not acked and len(self._nacked) < CLIENT_FAILURES_MAX:
            self._nacked.append(sequence)

    def _forget(self, entry: Unconfirmed) -> None:
        """Remove a settled entry from the publishes that may be returned."""
        entry.settled = True
        if entry.identity is not None:
            self._drop_settled(entry.identity)

    def _drop_settled(self, identity: Identity) -> None:
        """Remove settled entries until the oldest entry of an identity is unconfirmed."""
        entries = self._mandatory.get(identity)
        while entries and entries[0].settled:
            entries.popleft()
        if not entries:
            self._mandatory.pop(identity, None)

    def settled_to(self, sequence: int) -> bool:
        """Return whether every publish up to `sequence` has settled."""
        return self._lowest > sequence

    def take_failure(self) -> PublishFailed | None:
        """Return and clear the failures of publishes without a token."""
        nacked, returned = self._nacked, self._returned
        self._nacked, self._returned = [], []
        if nacked:
            return Nacked(nacked)
        return Returned(returned) if returned else None

    def abandon(self) -> list[Token]:
        """Clear everything because the channel has ended; return the unresolved tokens."""
        self.lost = self.unconfirmed > 0
        tokens = [one.token for one in self.waiting.values() if one.token is not None]
        while self._shares:
            self._shares.popleft().release()
        self.waiting.clear()
        self._mandatory.clear()
        self._early.clear()
        self._lowest = self.last + 1
        return tokens
