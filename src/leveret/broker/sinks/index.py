"""The staging queues of a virtual host by the name and the destination of their sink.

One user may have very many queues with one sink, or each with a sink of its own.

Invariants: a name and destination is listed as long as it has a queue; a name as long as it has a
destination.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.queue.waiting import WaitingQueue
from leveret.large_dict import LargeDict


@final
class StagingIndex:
    """The staging queues of one vhost."""

    def __init__(self) -> None:
        #: The queues by their ids, for each name and destination.
        self._places: LargeDict[tuple[str, str], LargeDict[i64, WaitingQueue]] = LargeDict()
        #: The number of destinations of each name.
        self._names: LargeDict[str, int] = LargeDict()

    def add(self, name: str, destination: str, queue: WaitingQueue) -> None:
        """Add a queue."""
        place = (name, destination)
        queues = self._places.get(place)
        if queues is None:
            queues = self._places[place] = LargeDict()
            self._names[name] = (self._names.get(name) or 0) + 1
        queues[queue.queue_id] = queue

    def remove(self, name: str, destination: str, queue: WaitingQueue) -> None:
        """Remove a queue, if it is listed."""
        place = (name, destination)
        queues = self._places.get(place)
        if queues is None:
            return
        queues.pop(queue.queue_id)
        if len(queues) == 0:
            del self._places[place]
            left = self._names[name] - 1
            if left == 0:
                del self._names[name]
            else:
                self._names[name] = left

    def has_name(self, name: str) -> bool:
        """Return whether a name has queues."""
        return name in self._names

    def has(self, name: str, destination: str) -> bool:
        """Return whether a name and a destination have queues."""
        return (name, destination) in self._places

    def queues_of(self, name: str, destination: str) -> list[WaitingQueue]:
        """Return the current queues of a name and a destination."""
        queues = self._places.get((name, destination))
        return [] if queues is None else queues.values()

    def places(self) -> list[tuple[str, str]]:
        """Return the names and destinations that have queues."""
        return self._places.keys()

    def clear(self) -> None:
        """Remove all queues."""
        self._places = LargeDict()
        self._names = LargeDict()
