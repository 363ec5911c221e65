"""The sinks of a name, claimed by a request that forgets them or hands them over.

A name may have very many destinations.  A request collects claims one by one, and changes nothing
until it has all.  A long operation changes the sinks then, each only while it is as it was claimed.

Invariants: nothing is changed while claims are collected; what they take is booked with requests,
until whoever collects them, or changes the sinks, has no more of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.core.ownership import Owner, key_of
from leveret.broker.scheduler.costs import SINK_FORGOTTEN
from leveret.broker.scheduler.task import Task
from leveret.broker.staging.release import Sink
from leveret.broker.staging.sinks import Sinks
from leveret.errors import PreconditionFailed

#: The memory of a claim.
CLAIM_BYTES: Final[i64] = 112


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
    """The sinks of one name that a request may change, as they were found."""

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
        """Return the one that was found first, if there is any; nothing was taken yet."""
        return self._found[0] if self._found else None

    def taken(self) -> Iterator[Claim]:
        """Yield them in the order in which they were found, and forget each."""
        self._found.reverse()
        while self._found:
            self._book(-1)
            yield self._found.pop()

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
        self._sinks.core.accounts.request_bytes += claims * CLAIM_BYTES


def forget_sinks(sinks: Sinks, claims: Claims) -> Task:
    """Begin to forget sinks: they may begin anew.

    One that has committed since, or was given to another user, stays.

    Raises: PreconditionFailed (406) where one of them has batches that are not released, or is
    being given to another user.
    """
    claims.check_released()
    claims.check_given()
    return sinks.core.scheduler.start(_forget(sinks, claims))


def _forget(sinks: Sinks, claims: Claims) -> Iterator[int]:
    for claim in claims.taken():
        sink = claim.sink
        is_same = claim.holds() and sink.batch == claim.batch
        if is_same and sinks.known(sink.name, sink.destination) is sink:
            sinks.forget_one(sink)
        yield SINK_FORGOTTEN
