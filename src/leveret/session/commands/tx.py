"""The class tx: transactions of publishes and acks, atomic across a crash by one journal record.

Source: AMQP 0-9-1 section 1.9 and behaviours 28 and 29.
"""

from __future__ import annotations

from leveret.errors import PreconditionFailed
from leveret.session.channel import CONFIRM, TX, Channel
from leveret.session.publish import give_back, reached
from leveret.session.unacked import Unacked
from leveret.wire.method import Method
from leveret.wire.methods import (
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)


def handle_tx(channel: Channel, method: Method) -> bool:
    """Do a method of class tx; tell whether it is one that a client sends.

    Raises: PreconditionFailed (406) for a confirming or a non-transactional channel.
    """
    if isinstance(method, TxSelect):
        if channel.mode == CONFIRM:
            raise PreconditionFailed("cannot switch from confirm to tx mode")
        channel.mode = TX
        channel.connection.send(channel.number, TxSelectOk())
        return True
    if not isinstance(method, TxCommit | TxRollback):
        return False
    if channel.mode != TX:
        raise PreconditionFailed("channel is not transactional")
    if isinstance(method, TxCommit):
        _commit(channel)
        channel.connection.reply(channel.number, TxCommitOk())
    else:
        _rollback(channel)
        channel.connection.send(channel.number, TxRollbackOk())
    return True


def _commit(channel: Channel) -> None:
    turn = channel.connection.turn
    journal = turn.journal
    publishes = channel.tx_publishes
    settles = channel.tx_settles
    channel.end_tx()
    journal.begin_tx()
    for publish in publishes:
        queues = [queue for queue in publish.queues if not queue.deleted]
        if queues:
            channel.vhost.publish(publish.message, queues)
        if publish.mandatory and not reached(queues):
            give_back(channel, publish.message)
    for settle in settles:
        channel.settle(settle.unacked, settle.outcome)
    journal.end_tx()
    if journal.has_records():
        turn.recorded()


def _rollback(channel: Channel) -> None:
    """Drop the publishes; the settled deliveries are unacked again on this channel."""
    returned: list[Unacked] = []
    for settle in channel.tx_settles:
        returned += settle.unacked
    channel.unacked.restore(returned)
    channel.end_tx()
