"""The class tx: transactions of publishes and acks, each committed as one journal record.

Source: AMQP 0-9-1 section 1.9; behaviours 28 (tx and confirms exclude each other) and 29 (errors at
publish, returns at commit).
"""

from __future__ import annotations

from collections.abc import Iterator

from mypy_extensions import i64

from leveret.broker.vhost.vhost import DUPLICATE, REJECTED
from leveret.errors import PreconditionFailed
from leveret.limits import LARGE_MESSAGE_BYTES, TX_BYTES_MAX
from leveret.message import Message
from leveret.session.channel.channel import CONFIRM, TX, ServerChannel
from leveret.session.channel.transaction import TxPublish
from leveret.session.channel.unacked import REJECT
from leveret.session.publish.immediate import deliver_now
from leveret.session.publish.returns import return_message
from leveret.session.publish.staged import allow_commit, settle_held
from leveret.session.publish.topic_permissions import check_again
from leveret.wire.method import Method
from leveret.wire.methods import (
    TxCommit,
    TxCommitOk,
    TxRollback,
    TxRollbackOk,
    TxSelect,
    TxSelectOk,
)


def handle_tx(channel: ServerChannel, method: Method) -> bool:
    """Handle a method of class tx; return False for one that clients do not send.

    Raises: PreconditionFailed (406) on a channel in confirm mode or a non-transactional one.
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
    if isinstance(method, TxRollback):
        channel.roll_back()
        channel.connection.send(channel.number, TxRollbackOk())
    elif channel.transaction.is_checked():
        _commit(channel)
    else:
        channel.connection.start(_commit_checked(channel))
    return True


def _commit_checked(channel: ServerChannel) -> Iterator[int]:
    """Check that the user still has the permissions for all publishes, and commit.

    Raises: as `_commit`; AccessRefused (403) for a permission that the user has lost, in which case
    nothing is committed.
    """
    transaction = channel.transaction
    while not transaction.is_checked():
        transaction.note_rights()
        for publish in transaction.publishes:
            message = publish.message
            address = message.address
            check_again(channel, address.exchange, address.routing_key, message)
            if publish.staging is not None:
                staged = publish.staging.destination_of(message.properties)
                check_again(channel, staged.exchange, staged.routing_key, message)
            if publish.commit is not None:
                yield from allow_commit(channel, publish.commit)
            yield 1
    if channel.awaits_reply():
        _commit(channel)


def _commit(channel: ServerChannel) -> None:
    """Commit the transaction as one journal record; return unroutable messages.

    Raises: PreconditionFailed (406) if a queue refused a message: the rest is committed, as in
    RabbitMQ, and the close is the only answer.
    """
    transaction = channel.take_transaction()
    core = channel.connection.core
    journal = core.journal
    core.scheduler.changes += 1
    core.scheduler.spent += transaction.work
    before = core.scheduler.letters.put_aside()
    outcome: i64 = 0
    journal.begin_tx()
    for publish in transaction.publishes:
        outcome |= _publish(channel, publish)
    rejected: i64 = 0
    largest: i64 = 0
    large: list[Message] = []
    for settle in transaction.settles:
        channel.settle(settle.unacked, settle.outcome)
        for unacked in settle.unacked:
            size: i64 = unacked.message.size
            if size >= LARGE_MESSAGE_BYTES:
                large.append(unacked.message)
            if settle.outcome == REJECT:
                rejected += size
                largest = max(largest, size)
    # The commit is not interrupted, but the acked messages may be freed later.
    core.memory.free_later(large)
    # The dead letters are part of the record, unless they would make it too large.
    is_whole = rejected - largest <= TX_BYTES_MAX
    if is_whole:
        core.scheduler.dead_letter_own(before)
    journal.end_tx()
    if not is_whole:
        core.scheduler.dead_letter_own(before)
    if journal.has_records():
        core.syncs.recorded()
    elif outcome & DUPLICATE:
        # The originals of duplicates in the transaction may not be synced yet.
        core.syncs.reply_group = journal.group - 1
    if outcome & REJECTED:
        raise PreconditionFailed("partial tx completion")
    channel.connection.reply(channel.number, TxCommitOk())
    channel.connection.check_publisher(True)


def _publish(channel: ServerChannel, publish: TxPublish) -> i64:
    """Put a held message into its queues, or return it; its TTL begins now."""
    if publish.commit is not None:
        return settle_held(channel, publish.commit)
    held = publish.message
    core = channel.connection.core
    message = held.copied(held.address, held.properties, core.now_ms, held.numbered)
    found = publish.found.left()
    targets = found.targets
    if publish.immediate:
        return deliver_now(channel, message, found, publish.mandatory)
    outcome: i64 = 0
    owner = channel.connection.access.owner
    if targets and publish.staging is not None:
        outcome = publish.staging.stage(message, owner)
    elif targets:
        if publish.found.delay_ms > 0:
            # Read all headers to find the delay only once per message.
            known = channel.vhost.known_delay
            known.delay_ms = publish.found.delay_ms
            known.properties = message.properties
        outcome = channel.vhost.publish(message, targets, owner)
        channel.vhost.known_delay.properties = b""
    if core.events is not None and publish.staging is None:
        core.events.published(channel.vhost.name, message, len(targets), targets)
    if publish.mandatory and not found.reached():
        return_message(channel, message)
    elif not targets:
        core.counts.unroutable_dropped += 1
    return outcome
