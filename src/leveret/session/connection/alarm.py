"""What an alarm (memory or disk) means to a connection that publishes (behaviour 16).

It is told (connection.blocked), and halted after its next publish.  But a connection in the middle
of a content or a transaction goes on to its end: halted there, what it has begun could keep the
alarm on for ever.  What may come in spite of the alarm is bounded (`Broker.is_overfull`); on a full
disk it is not confirmed before there is room for it.
"""

from __future__ import annotations

from typing import final

from leveret.session.connection_base import ConnectionBase
from leveret.session.states import HALT_ALARM, OPEN
from leveret.wire.methods import ConnectionBlocked, ConnectionUnblocked


@final
class Alarm:
    """What one connection was told of alarms."""

    def __init__(self, connection: ConnectionBase) -> None:
        self._connection = connection
        #: True from connection.blocked to connection.unblocked.
        self._told = False

    def block(self) -> None:
        """Tell a publisher that an alarm is on, and halt it as soon as it can be.

        Raises: ResourceFault (506) as `ConnectionBase.check_memory`.
        """
        connection = self._connection
        if connection.capabilities.blocked and not self._told:
            self._told = True
            connection.send(0, ConnectionBlocked(connection.broker.blocked_reason))
        if connection.assembling_bytes == 0:
            connection.halt(HALT_ALARM)
        else:
            connection.check_memory()

    def unblock(self) -> None:
        """Go on, and say so, if the connection is open."""
        connection = self._connection
        if connection.state != OPEN:
            return
        if self._told:
            self._told = False
            connection.send(0, ConnectionUnblocked())
        if connection.halted & HALT_ALARM:
            connection.resume(HALT_ALARM)
