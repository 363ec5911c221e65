"""The sinks of one name, claimed by a request that will forget them or give them to another user.

A name may have many destinations.  A request collects claims one by one, and changes nothing until
it has all of them.  A long operation then changes the sinks, each only if it is still as it was
when it was claimed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, final

from mypy_extensions import i64, mypyc_attr

from leveret.broker.ownership import key_of
from leveret.broker.scheduler.costs import SINK_FORGOTTEN
from leveret.broker.scheduler.task import Task
from leveret.broker.sinks.release import Sink
from leveret.broker.sinks.sinks import Sinks
from leveret.errors import PreconditionFailed


@final
@mypyc_attr(acyclic=True)
class Claim:
    """A sink, with its state at the time when a user was permitted to change it."""

    def __init__(self, sink: Sink, takes: bool = False, offers: bool = False) -> None:
        self.sink: Final = sink
        self.batch: Final[i64] = sink.batch
        self.owner: Final = sink.owner
        self.offered: Final = sink.offered
        #: True for an offered sink that is accepted, and for a sink that is only offered.
        self.takes: Final = takes
        self.offers: Final = offers

    def holds(self) -> bool:
        """Return whether the sink may still be given or offered: no other request is giving it."""
        sink = self.sink
        if sink.gives_to is not None or key_of(sink.owner) != key_of(self.owner):
            return False
        return not self.takes or key_of(sink.offered) == key_of(self.offered)


def check_given(sinks: Sinks, name: str, claims: Sequence[Claim]) -> None:
    """Check that no sink of a name is being given.  Raises: PreconditionFailed (406)."""
    gives_to = sinks.giving.get(name)
    for claim in claims:
        gives_to = gives_to or claim.sink.gives_to
    if gives_to is not None:
        raise PreconditionFailed(f"sink '{name}' is being handed over to user '{gives_to.name}'")


def forget_sinks(sinks: Sinks, name: str, claims: Sequence[Claim]) -> Task:
    """Begin to forget sinks of a name; their batches may start again.

    A sink that has committed since, or was given to another user, stays.

    Raises: PreconditionFailed (406) if one of them has unreleased batches, or is being given to
    another user.
    """
    for claim in claims:
        if claim.sink.releases:
            raise PreconditionFailed(f"sink '{name}' has batches that are not released yet")
    check_given(sinks, name, claims)
    return sinks.core.scheduler.start(_forget(sinks, claims))


def _forget(sinks: Sinks, claims: Sequence[Claim]) -> Iterator[int]:
    for claim in claims:
        sink = claim.sink
        is_same = claim.holds() and sink.batch == claim.batch
        if is_same and sinks.known(sink.name, sink.destination) is sink:
            sinks.forget_one(sink)
        yield SINK_FORGOTTEN
