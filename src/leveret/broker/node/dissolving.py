"""Deleting a vhost with all that is in it, slice after slice.

One record of the journal says that the vhost dissolves.  From then on nobody finds it, nothing can
be declared in it, and a start that reads the record completes the deletion.  Its connections are
closed first; then its exchanges and queues go one by one, and a last record says that it is gone.
Only then its name is free.

Each recorded queue is named by a record of its own: a checkpoint under way may come too late to
tell whose it was.

Invariant: nothing is left in the vhost, and none of its connections is open, when it has ended.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.core.turn import Link, Turn
from leveret.broker.node.closing import Closing
from leveret.broker.scheduler.task import WaitedWork
from leveret.broker.vhost.vhost import Vhost


@final
class Dissolving(WaitedWork):
    """The deletion of one vhost, which is in `others` until it is over."""

    def __init__(
        self, turn: Turn, vhost: Vhost, links: list[Link], others: dict[str, Vhost]
    ) -> None:
        super().__init__()
        self._turn: Final = turn
        self._vhost: Final = vhost
        self._others: Final = others
        text = f"vhost '{vhost.name}' is deleted"
        self._closing: Final = Closing(turn, links, text, vhost=vhost.name)

    def step(self, steps: i64) -> bool:
        """Delete more of it."""
        turn = self._turn
        turn.changes += 1
        last: i64 = turn.steps + steps
        return self._closing.advance(last) or self._vhost.dissolve(last)

    def ended(self) -> None:
        """Journal that it is gone, and let its name be used again."""
        turn = self._turn
        name = self._vhost.name
        # A queue of a vhost of the same name that is made later is none of it.
        last_queue_id = int(self._vhost.ids.last_queue_id)
        turn.journal.delete("vhost", {"name": name, "last_queue_id": last_queue_id})
        turn.recorded()
        del self._others[name]
        if turn.events is not None:
            turn.events.forget_vhost(name)
        super().ended()
