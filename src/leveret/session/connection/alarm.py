"""What an alarm (memory or disk) means to a connection that publishes (behaviour 16).

It is told, and halted after its next publish.  But a connection in the middle of a content or a
transaction goes on to its end: halted there, what it has begun could keep the alarm on for ever.
What may come in spite of the alarm is bounded (`Broker.is_overfull`); on a full disk it is not
confirmed before there is room for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.errors import ResourceFault
from leveret.session.states import HALT_ALARM, OPEN
from leveret.wire.methods import ConnectionBlocked, ConnectionUnblocked

if TYPE_CHECKING:
    from leveret.session.connection.connection import Connection


def stand_still(connection: Connection) -> None:
    """Tell a publisher that an alarm is on, and halt it as soon as it can be.

    Raises: ResourceFault (506) as `check_room`.
    """
    if connection.blocked_notify and not connection.told_blocked:
        connection.told_blocked = True
        connection.send(0, ConnectionBlocked(connection.broker.blocked_reason))
    if connection.assembling_bytes == 0:
        connection.halted |= HALT_ALARM
    else:
        check_room(connection)


def check_room(connection: Connection) -> None:
    """Give way when the memory is used up in spite of the alarm.

    Raises: ResourceFault (506).
    """
    if connection.broker.is_overfull():
        raise ResourceFault("no memory left for what was begun before the alarm")


def over(connection: Connection) -> None:
    """Go on, and say so, if the connection is open."""
    if connection.state != OPEN:
        return
    if connection.told_blocked:
        connection.told_blocked = False
        connection.send(0, ConnectionUnblocked())
    if connection.halted & HALT_ALARM:
        connection.resume(HALT_ALARM)
