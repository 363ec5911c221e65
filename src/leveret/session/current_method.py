"""Tracks the method that a connection is handling: its ids, and whether it has changed anything.

Publishes that are complete in the input follow each other without `begin`.  Each is counted
(`publish`) before it changes anything else.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.core import Core
from leveret.wire.methods.ids import BASIC_PUBLISH


@final
class CurrentMethod:
    """The current method or publish, and the change counters from before it began."""

    def __init__(self, core: Core) -> None:
        self._core = core
        #: The channel that a soft error closes; 0 for none.
        self.channel: i64 = 0
        #: The class and method ids, as at the start of a payload; 0 for none.
        self.ids: i64 = 0
        self._published: i64 = 0
        self._changes: i64 = 0
        self._journal_bytes: i64 = 0

    def begin(self, published: i64) -> None:
        """Save the change counters before a frame; `published` counts the publishes so far."""
        core = self._core
        self.channel = 0
        self.ids = 0
        self._published = published
        self._changes = core.scheduler.changes
        self._journal_bytes = core.journal.unsynced_bytes

    def publish(self, channel: i64, published: i64) -> None:
        """Begin a publish; `published` counts the publishes before it."""
        self.channel = channel
        self.ids = BASIC_PUBLISH
        self._published = published

    def method(self, channel: i64, ids: i64) -> None:
        """Begin a method."""
        self.channel = channel
        self.ids = ids

    def changed(self, published: i64) -> bool:
        """Return whether the method has changed shared state or written to the journal."""
        if published != self._published:
            return True
        if self.ids == BASIC_PUBLISH:
            return False
        core = self._core
        if core.scheduler.changes != self._changes or core.journal.in_tx:
            return True
        return core.journal.unsynced_bytes != self._journal_bytes
