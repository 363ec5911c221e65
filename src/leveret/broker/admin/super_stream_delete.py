"""Deleting a super stream: what may be long comes before, or follows, and it goes at once.

A partition may have very many bindings and consumers, and a user's rights to it may take long to
check.  So the rights are checked slice after slice.  Exchanges that choose one of their bindings
for each message must not choose a partition that is gone: where it has many such bindings, these
are removed in slices before, as if the client had removed them.  Then all parts are deleted by one
record; other bindings, consumers and messages follow in slices.

Invariant: a super stream is deleted by one record of the journal, if all that its delete depends
on holds at that moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from leveret.broker.admin.super_stream import (
    PARTITION_OF,
    PartitionAccess,
    super_stream_label,
    waiting_in,
)
from leveret.broker.values.permission import CONFIGURE
from leveret.errors import PreconditionFailed

if TYPE_CHECKING:
    from leveret.broker.node.access import Access
    from leveret.broker.scheduler.task import Task
    from leveret.broker.stream.stream import Stream
    from leveret.broker.vhost.vhost import Vhost
    from leveret.names import Name

#: Bindings from exchanges that choose one of theirs which are removed at once, with all parts.
_CHOICES_AT_ONCE: Final = 512

#: Partitions that are looked at in the time of a step.
_LOOKS_PER_STEP: Final = 8


@final
class SuperStreamDelete:
    """Deletes a super stream with its partitions."""

    def __init__(
        self, vhost: Vhost, name: Name, if_unused: bool, if_empty: bool, access: Access | None
    ) -> None:
        """Check what does not depend on the partitions; nothing is changed.

        `access` is that of the user whose rights are checked; None is for one who has all.

        Raises: AccessRefused (403); NotFound (404).
        """
        if access is not None:
            access.configure("exchange", name)
        self._vhost: Final = vhost
        self._name: Final = name
        self._if_unused: Final = if_unused
        self._if_empty: Final = if_empty
        self._access: Final = access
        self._rights: Final = PartitionAccess(access, vhost, name, CONFIGURE)
        #: True while partitions are unbound from exchanges which choose, and how many of them are.
        self._unbinds = False
        self._unbound: i64 = 0
        self._is_deleted = False
        #: The removal of the bindings that the parts had.
        self.unbinding: Task | None = None
        #: How many messages the partitions held.
        self.waiting: i64 = 0

    def advance(self, last: i64) -> bool:
        """Go on until `Turn.steps` is at `last`; return whether some is left.

        Raises: AccessRefused (403); NotFound (404) where it was deleted meanwhile;
        PreconditionFailed (406) if it is in use or not empty.
        """
        while not self._is_deleted:
            if not self._unbinds:
                if self._rights.advance(last):
                    return True
                self._check()
                self._unbinds = not self._has_few_choices()
            if not self._unbinds:
                self._delete()
            elif self._unbind(last):
                return True
        unbinding = self.unbinding
        return unbinding is not None and not unbinding.over

    def _check(self) -> None:
        """Raises: AccessRefused (403); PreconditionFailed (406)."""
        if self._access is not None:
            # What it was allowed in the first slice may have been taken since.
            self._access.configure("exchange", self._name)
        streams = self._rights.streams
        where = super_stream_label(self._vhost, self._name)
        self._vhost.turn.steps += len(streams) // _LOOKS_PER_STEP
        self.waiting = waiting_in(streams)
        for stream in streams if self._if_unused else []:
            if stream.consumers:
                raise PreconditionFailed(f"{where} in use")
        if self._if_empty and self.waiting > 0:
            raise PreconditionFailed(f"{where} not empty")

    def _has_few_choices(self) -> bool:
        """Tell whether few exchanges choose among the partitions, or all of them were unbound."""
        exchanges = self._vhost.exchanges
        left: i64 = 0
        for stream in self._rights.streams:
            if self._is_part(stream):
                left += exchanges.choices_of(stream)
        self._vhost.turn.steps += len(self._rights.streams) // _LOOKS_PER_STEP
        return left <= _CHOICES_AT_ONCE

    def _unbind(self, last: i64) -> bool:
        """Unbind the partitions from exchanges that choose; return whether some are left."""
        turn = self._vhost.turn
        exchanges = self._vhost.exchanges
        streams = self._rights.streams
        while self._unbound < len(streams):
            stream = streams[self._unbound]
            if self._is_part(stream):
                for cost in exchanges.unbind_choices(stream):
                    turn.steps += cost
                    if turn.steps >= last:
                        return True
            self._unbound += 1
        # What the delete depends on is looked at again: others may have bound some meanwhile.
        self._unbinds = False
        self._unbound = 0
        return False

    def _is_part(self, stream: Stream) -> bool:
        """Tell whether a stream was declared as a partition, and is deleted with the others."""
        return stream.arguments.get(PARTITION_OF) == self._name

    def _delete(self) -> None:
        """Delete all parts."""
        exchanges = self._vhost.exchanges
        journal = self._vhost.turn.journal
        self._is_deleted = True
        exchanges.gather_unbinding()
        journal.begin_tx()
        try:
            exchanges.delete(self._name, False)
            for stream in self._rights.streams:
                if self._is_part(stream):
                    self._vhost.queues.drop(stream)
        finally:
            journal.end_tx()
            self.unbinding = exchanges.begin_gathered()
