"""The unbind of HareMQ, which names no key: all bindings of a queue to an exchange, in slices.

Nothing is removed where the user may not remove one of them.  What others bind meanwhile stays.
"""

from __future__ import annotations

from typing import final

from mypy_extensions import i64

from leveret.broker.topology.binding import Binding
from leveret.broker.vhost.exchanges import BINDING_STEPS
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import AmqpError
from leveret.names import Name
from leveret.session.client_session import ClientWork
from leveret.session.commands.exchange import check_binding
from leveret.session.haremq.connection_base import HareConnectionBase
from leveret.wire.haremq.frames import UNBIND


@final
class PairUnbinding(ClientWork):
    """Removes the bindings of a pair, and answers."""

    def __init__(
        self,
        connection: HareConnectionBase,
        vhost: Vhost,
        exchange: Name,
        queue: Name,
        identity: bytes,
    ) -> None:
        super().__init__(connection)
        self._connection = connection
        self._vhost = vhost
        self._exchange = exchange
        self._queue = queue
        self._identity = identity
        self._refusal = ""
        #: Bindings of the queue that are still to be looked at, and those of the pair.
        found = vhost.queues.by_name.get(queue)
        self._left: list[Binding] = []
        if found is not None:
            self._left = vhost.exchanges.copied_bindings_to(found)
        self._found: list[Binding] = []

    def advance(self, last: i64) -> bool:
        """Look at more of them, or remove more."""
        return self._find(last) or self._remove(last)

    def _find(self, last: i64) -> bool:
        turn = self.session.turn
        while self._left:
            if turn.steps >= last:
                return True
            turn.steps += 1
            binding = self._left.pop()
            if binding.source.name != self._exchange or binding.has_ended():
                continue
            try:
                self._check(binding)
            except AmqpError as error:
                self._refusal = error.text
                self._left.clear()
                self._found.clear()
                return False
            self._found.append(binding)
        return False

    def _check(self, binding: Binding) -> None:
        """Check that the user may remove a binding.

        Raises: AccessRefused (403); ResourceLocked (405) for another's exclusive queue.
        """
        vhost = self._vhost
        key = binding.binding_key
        check_binding(self._connection.access, vhost, "queue", self._queue, self._exchange, key)
        if not self._found:
            vhost.queues.existing(self._queue, self._connection)

    def _remove(self, last: i64) -> bool:
        turn = self.session.turn
        exchanges = self._vhost.exchanges
        while self._found:
            if turn.steps >= last:
                return True
            turn.steps += BINDING_STEPS
            binding = self._found.pop()
            # What was removed meanwhile is gone; what has an end that is deleted goes with that.
            if binding.is_there() and not binding.has_ended():
                exchanges.remove(binding, True)
                exchanges.forget_destination(binding)
        return False

    def reply(self) -> None:
        """Answer the request, if anybody listens."""
        connection = self._connection
        if not connection.awaits_reply():
            return
        if self._refusal:
            connection.refuse(self._identity, UNBIND, self._refusal)
            return
        # What others removed a moment ago may be in no record yet.
        self._vhost.wait_for_removal()
        turn = connection.turn
        group = turn.reply_group
        connection.answers.answer(self._identity, True, group if turn.must_wait(group) else 0)
