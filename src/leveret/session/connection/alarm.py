"""What an alarm (memory or disk) means to a connection that publishes (behaviour 16).

The client gets a connection.blocked, and the connection is halted after its next publish.  In the
middle of a content or a transaction it continues to the end: if it were halted there, what it has
begun could keep the alarm on for ever.  What may come in spite of the alarm is limited
(`Broker.is_overfull`); on a full disk it is not confirmed before there is space for it.
"""

from __future__ import annotations

from typing import final

from leveret.session.connection_base import ConnectionBase
from leveret.session.states import HALT_ALARM, OPEN
from leveret.wire.methods import ConnectionBlocked, ConnectionUnblocked


@final
class Alarm:
    """The alarm as one connection knows it."""

    def __init__(self, connection: ConnectionBase) -> None:
        self._connection = connection
        #: True from connection.blocked to connection.unblocked.
        self._blocked = False

    def block(self) -> None:
        """Send connection.blocked to a publisher, and halt the connection as soon as possible.

        Raises: ResourceFault (506) as `ConnectionBase.check_memory`.
        """
        connection = self._connection
        if connection.capabilities.blocked and not self._blocked:
            self._blocked = True
            connection.send(0, ConnectionBlocked(connection.broker.blocked_reason))
        if connection.assembling_bytes == 0:
            connection.halt(HALT_ALARM)
        else:
            connection.check_memory()

    def unblock(self) -> None:
        """Send connection.unblocked, and parse on, if the connection is open."""
        connection = self._connection
        if connection.state != OPEN:
            return
        if self._blocked:
            self._blocked = False
            connection.send(0, ConnectionUnblocked())
        if connection.halted & HALT_ALARM:
            connection.resume(HALT_ALARM)
