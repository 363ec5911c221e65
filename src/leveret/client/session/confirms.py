"""Confirms of one channel: which publishes are unconfirmed, and what became of them.

Sequences start at 1 with confirm.select and count every publish (behaviour 30).  A mandatory
message comes back by basic.return before its confirm (behaviour 24); the return does not say the
sequence, so it is matched by exchange, routing key and body with the oldest such publish.

Invariants: a sequence settles once; `waiting` holds exactly the unconfirmed ones; failures that no
token waits for are kept, up to a limit, until `take_failure`; `lost` tells that the channel ended
with some unconfirmed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from leveret.client.errors import Nacked, Returned
from leveret.errors import PreconditionFailed
from leveret.limits import CLIENT_FAILURES_MAX

if TYPE_CHECKING:
    from leveret.client.errors import PublishFailed
    from leveret.client.events import Token
    from leveret.client.message import ReturnedMessage

#: What identifies a returned message: exchange, routing key and body.
Identity = tuple[str, str, bytes]


class Unconfirmed:
    """A publish that someone waits for (`token`) or that may come back (`identity`)."""

    __slots__ = ("identity", "returned", "settled", "token")

    def __init__(self, token: Token | None, identity: Identity | None) -> None:
        self.token = token
        self.identity = identity
        self.returned: ReturnedMessage | None = None
        self.settled = False


class Confirms:
    """The confirms of one channel from confirm.select on."""

    def __init__(self) -> None:
        self.last = 0
        self.lost = False
        self.waiting: dict[int, Unconfirmed | None] = {}
        self._lowest = 1
        self._mandatory: dict[Identity, deque[Unconfirmed]] = {}
        self._nacked: list[int] = []
        self._returned: list[ReturnedMessage] = []

    @property
    def unconfirmed(self) -> int:
        """How many publishes wait for their confirm."""
        return len(self.waiting)

    def published(self, token: Token | None, identity: Identity | None) -> int:
        """Count a publish and return its sequence; `identity` is given for a mandatory one."""
        self.last += 1
        if token is None and identity is None:
            self.waiting[self.last] = None
            return self.last
        entry = Unconfirmed(token, identity)
        self.waiting[self.last] = entry
        if identity is not None:
            self._mandatory.setdefault(identity, deque()).append(entry)
        return self.last

    def returned(self, message: ReturnedMessage) -> bool:
        """Note a return; False when no unconfirmed publish fits it."""
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
        """Settle by basic.ack or basic.nack; return the tokens with what became of them.

        A sequence that has settled before is ignored.  Raises: PreconditionFailed (406) for one
        that was never published.
        """
        if sequence > self.last or sequence < 0 or (sequence == 0 and not multiple):
            raise PreconditionFailed(f"unknown delivery tag {sequence}")
        outcomes: list[tuple[Token, PublishFailed | None]] = []
        if not multiple:
            if sequence in self.waiting:
                self._settle_one(sequence, acked, outcomes)
            return outcomes
        upper = sequence or self.last
        for number in range(self._lowest, upper + 1):
            if number in self.waiting:
                self._settle_one(number, acked, outcomes)
        self._lowest = max(self._lowest, upper + 1)
        return outcomes

    def _settle_one(
        self, sequence: int, acked: bool, outcomes: list[tuple[Token, PublishFailed | None]]
    ) -> None:
        """Settle one unconfirmed publish."""
        entry = self.waiting.pop(sequence)
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
        """Take a settled entry from those that may come back."""
        entry.settled = True
        if entry.identity is not None:
            self._drop_settled(entry.identity)

    def _drop_settled(self, identity: Identity) -> None:
        """Keep the oldest entry of an identity one that may still come back."""
        entries = self._mandatory.get(identity)
        while entries and entries[0].settled:
            entries.popleft()
        if not entries:
            self._mandatory.pop(identity, None)

    def settled_to(self, sequence: int) -> bool:
        """Tell whether every publish up to `sequence` has settled."""
        while self._lowest <= self.last and self._lowest not in self.waiting:
            self._lowest += 1
        return self._lowest > sequence

    def take_failure(self) -> PublishFailed | None:
        """Return what went wrong with publishes that no token waited for, and forget it."""
        nacked, returned = self._nacked, self._returned
        self._nacked, self._returned = [], []
        if nacked:
            return Nacked(nacked)
        return Returned(returned) if returned else None

    def abandon(self) -> list[Token]:
        """Forget everything, as the channel has ended; return the tokens that still wait."""
        self.lost = bool(self.waiting)
        tokens = [e.token for e in self.waiting.values() if e is not None and e.token is not None]
        self.waiting.clear()
        self._mandatory.clear()
        return tokens
