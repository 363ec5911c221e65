"""The sinks of a name, found in slices for who wants to forget them or to hand them over.

A vhost has many sinks, and a name may have as many destinations: to look at all of them takes
longer than others should wait.  So who asks collects claims in slices, and changes nothing until he
has all.  A long operation changes the sinks then, each only while it is as it was claimed.

Invariants: nothing is changed while claims are collected; what they take is booked with requests,
until whoever collects them, or changes the sinks, has no more of them.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.core.ownership import Owner, key_of
from leveret.broker.staging.release import Sink
from leveret.broker.staging.sinks import Sinks
from leveret.errors import PreconditionFailed

#: Sinks that are looked at between two looks at the sockets, and those looked at in one step.
_LOOKS: Final[i64] = 1024
_LOOKS_PER_STEP: Final[i64] = 16

#: What it costs in steps to judge a sink and to claim it.
_CLAIMED_STEPS: Final = 2

#: The memory of a sink that is to be looked at, and of a claim.
_LEFT_BYTES: Final[i64] = 8
CLAIM_BYTES: Final[i64] = 112


@final
class SinkSearch:
    """Finds the sinks of a name, or the one of a destination, in slices."""

    def __init__(self, sinks: Sinks, name: str, destination: str | None) -> None:
        self._sinks: Final = sinks
        self._name: Final = name
        #: The sinks that are left to look at, the next one last.
        self._left: list[Sink] = []
        if destination is None:
            self._left = list(sinks.by_place.values())
            self._left.reverse()
            sinks.turn.steps += len(self._left) // _LOOKS
        else:
            sink = sinks.by_place.get((name, destination))
            if sink is not None:
                self._left.append(sink)
        self._book(len(self._left))

    def is_over(self) -> bool:
        """Return whether all were looked at."""
        return not self._left

    def take(self) -> list[Sink]:
        """Return those that a slice finds, which may be none."""
        sinks = self._sinks
        found: list[Sink] = []
        looks = min(i64(len(self._left)), _LOOKS)
        self._book(-looks)
        sinks.turn.steps += looks // _LOOKS_PER_STEP
        while looks > 0:
            looks -= 1
            sink = self._left.pop()
            # Others are forgotten by now.
            if sink.name == self._name and sinks.known(sink.name, sink.destination) is sink:
                found.append(sink)
        sinks.turn.steps += _CLAIMED_STEPS * len(found)
        return found

    def end(self) -> None:
        """Look at no more of them."""
        self._book(-len(self._left))
        self._left = []

    def _book(self, looks: i64) -> None:
        self._sinks.turn.accounts.request_bytes += looks * _LEFT_BYTES


@final
@mypyc_attr(acyclic=True)
class Claim:
    """A sink as it was when somebody was allowed to change it."""

    def __init__(self, sink: Sink, takes: bool, offers: bool) -> None:
        self.sink: Final = sink
        self.batch: Final[i64] = sink.batch
        self.owner: Final = sink.owner
        self.offered: Final = sink.offered
        #: True for one that was offered and is taken, and for one that is offered only.
        self.takes: Final = takes
        self.offers: Final = offers

    def is_owned(self) -> bool:
        """Return whether the sink belongs to whom it belonged to."""
        return key_of(self.sink.owner) == key_of(self.owner)

    def holds(self) -> bool:
        """Return whether it may still be given or offered: nobody else gives it."""
        sink = self.sink
        if sink.gives_to is not None or not self.is_owned():
            return False
        return not self.takes or key_of(sink.offered) == key_of(self.offered)


@final
class Claims:
    """The sinks of one name that a request may change, as they were found; the next one is last."""

    def __init__(self, sinks: Sinks, name: str) -> None:
        self.name: Final = name
        self._sinks: Final = sinks
        self._found: list[Claim] = []
        #: How many were offered and are taken.
        self.takes: i64 = 0
        #: Whom one of them is being given to, and whether one has batches to release.
        self._gives_to: Owner | None = None
        self._releases = False

    def add(self, sink: Sink, takes: bool = False, offers: bool = False) -> None:
        """Claim a sink to forget it, to give it or to offer it."""
        self._found.append(Claim(sink, takes, offers))
        self._book(1)
        if takes:
            self.takes += 1
        if sink.gives_to is not None:
            self._gives_to = sink.gives_to
        if sink.releases:
            self._releases = True

    def first(self) -> Claim | None:
        """Return the one that was found first, which is still there before the others are used."""
        return self._found[0] if self._found else None

    def begin(self) -> None:
        """Have `take` return them in the order in which they were found."""
        self._found.reverse()

    def any(self) -> bool:
        """Return whether there are any left."""
        return len(self._found) > 0

    def take(self) -> Claim:
        """Return the next one, and forget it."""
        self._book(-1)
        return self._found.pop()

    def end(self) -> None:
        """Forget all: nothing comes of the request."""
        self._book(-len(self._found))
        self._found = []

    def check_given(self) -> None:
        """Check that no sink of the name is being given.  Raises: PreconditionFailed (406)."""
        gives_to = self._sinks.giving.get(self.name, self._gives_to)
        if gives_to is not None:
            raise PreconditionFailed(
                f"sink '{self.name}' is being handed over to user '{gives_to.name}'"
            )

    def check_released(self) -> None:
        """Check that all their batches are released.  Raises: PreconditionFailed (406)."""
        if self._releases:
            raise PreconditionFailed(f"sink '{self.name}' has batches that are not released yet")

    def _book(self, claims: i64) -> None:
        self._sinks.turn.accounts.request_bytes += claims * CLAIM_BYTES
