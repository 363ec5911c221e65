"""Staged messages, and the commits of batches.

A message to a staging queue is checked as if it were published to the exchange that its headers
name: a user without write permission there is refused at once.  Its CC and BCC are kept, and take
effect when the batch is committed.

A commit may be a long operation.  The connection is halted until the commit is accepted or refused,
so that later input is handled after it, and confirms stay in order.  The commit is confirmed once
its batch is released.  On a channel in confirm mode, a refused commit is answered by a basic.nack,
after a basic.return with the reason if it was mandatory.  On other channels it closes the channel.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mypy_extensions import i64

from leveret.broker.queue.target import DROP, TAKE, Destinations
from leveret.broker.sinks.area import area_of
from leveret.broker.sinks.commit import Commit, read_command
from leveret.broker.sinks.sinks import GIVE_SINK
from leveret.broker.sinks.staging import JUDGED, StagingQueue, staging_of
from leveret.broker.users.permissions import CONFIGURE
from leveret.broker.vhost.vhost import DUPLICATE, RECORDED, REJECTED
from leveret.errors import AccessRefused, AmqpError, PreconditionFailed, SoftError
from leveret.limits import SHORT_STRING_BYTES_MAX
from leveret.message import Message
from leveret.names import Name, cleaned
from leveret.session.channel.channel import CONFIRM, TX, ServerChannel
from leveret.session.channel.confirms import late_outcome
from leveret.session.channel.transaction import TxPublish
from leveret.session.publish.immediate import accept_immediate
from leveret.session.publish.inspect import Inspected, inspect, inspected_message
from leveret.session.publish.returns import return_message
from leveret.session.publish.route import Route, check_copies, from_utf8, writable
from leveret.session.publish.topic_permissions import check_way
from leveret.wire.content.message_batch import BATCH_PROPERTIES, MessageBatch
from leveret.wire.frames import CONTENT_HEAD_BYTES

#: The prefix of the names of Spark's staging queues; the name of the sink follows it.
_SPARKS_STAGING: Final = "leveret.staging."


def accept_special(
    channel: ServerChannel, route: Route, properties: bytes, body: bytes, persistent: bool
) -> None:
    """Stage a message, commit a batch, or handle an immediate message.

    Raises: NotFound (404), AccessRefused (403), PreconditionFailed (406).
    """
    connection = channel.connection
    if route.immediate:
        accept_immediate(channel, route, properties, body, persistent)
    elif route.commits:
        route.exchange.published_in += 1
        message = Message(route.address, properties, body, connection.core.now_ms, False)
        connection.start(_commit(channel, message, route.mandatory))
    else:
        _stage(channel, route, properties, body)


# -- staging ---------------------------------------------------------------------------------------


def _stage(channel: ServerChannel, route: Route, properties: bytes, body: bytes) -> None:
    """Put a message into its staging queue, or into the transaction."""
    staging = route.staging
    assert staging is not None
    connection = channel.connection
    owner = connection.access.owner
    staging.check_user(owner)
    if properties == BATCH_PROPERTIES:
        _stage_batch(channel, route, staging, body)
        return
    inspected = inspect(channel, properties) or Inspected(properties, [], False)
    _check_destination(channel, staging, inspected.properties, inspected.more_keys)
    # Staged messages are always stored; the delivery mode takes effect after the commit.
    message = inspected_message(channel, route, inspected, route.targets, body, True)
    if channel.mode == TX:
        channel.transaction.hold(TxPublish(message, route, route.mandatory, staging))
        connection.check_publisher(True)
        return
    outcome = staging.stage(message, owner)
    if channel.mode == CONFIRM:
        channel.confirms.count(outcome)
    connection.check_publisher(outcome & RECORDED != 0)


def _stage_batch(channel: ServerChannel, route: Route, staging: StagingQueue, body: bytes) -> None:
    """Put the messages of a batch into their staging queue.

    Raises: NotFound (404), AccessRefused (403), PreconditionFailed (406).
    """
    connection = channel.connection
    resumes: bool = channel.mode == CONFIRM and channel.confirms.progress is not None
    if channel.mode == TX or resumes or staging.address is None:
        raise PreconditionFailed(
            f"a batch cannot be staged in queue '{staging.name}': it needs a queue with "
            "x-staging-exchange, and a channel without a transaction and a publish session"
        )
    batch = MessageBatch(body)
    properties_max = connection.shape.payload_bytes_max - CONTENT_HEAD_BYTES
    for properties in batch.distinct:
        if len(properties) > properties_max:
            raise PreconditionFailed("invalid batch: the properties of a message fit into no frame")
        if inspect(channel, properties) is not None or properties[0] & JUDGED:
            raise PreconditionFailed(
                "invalid batch: a message has an expiration, a priority, copies or a publishing id"
            )
    _check_destination(channel, staging, BATCH_PROPERTIES, [])
    route.exchange.published_in += 1
    connection.count_published(len(body))
    decision = staging.admit_batch(batch)
    if decision == TAKE:
        hold = staging.write_batch(batch)
        if channel.mode == CONFIRM:
            channel.confirms.count_held(hold)
    elif channel.mode == CONFIRM:
        channel.confirms.count(DUPLICATE if decision == DROP else REJECTED)
    connection.check_publisher(decision == TAKE)


def _check_destination(
    channel: ServerChannel, staging: StagingQueue, properties: bytes, copies: list[str]
) -> None:
    """Check that the user may publish to the destination of a staged message.

    Raises: NotFound (404), AccessRefused (403), PreconditionFailed (406).
    """
    staged = staging.destination_of(properties)
    name, key = from_utf8(staged.exchange, staged.routing_key)
    exchange = writable(channel.connection.access, channel.vhost, Name(name), key)
    if copies:
        check_copies(channel, exchange, key, copies, properties)


# -- commits ---------------------------------------------------------------------------------------


def _commit(channel: ServerChannel, message: Message, mandatory: bool) -> Iterator[int]:
    """Check and settle the commit of a batch, if the channel is still open after the checks.

    Raises: AmqpError if it is refused, on a channel not in confirm mode.
    """
    connection = channel.connection
    connection.count_published(len(message.body))
    commit: Commit | None = None
    try:
        command = read_command(message.body)
        commit = Commit(area_of(channel.vhost), command, connection.access.owner)
        for cost in _checked(channel, commit):
            yield cost
            if not channel.awaits_reply():
                commit.unseal()
                return
        if channel.mode == TX:
            held = TxPublish(message, Destinations([]), mandatory, None, commit)
            channel.transaction.hold(held)
            return
        outcome = commit.settle()
    except AmqpError as error:
        if commit is not None:
            commit.unseal()
        if channel.mode != CONFIRM or not isinstance(error, SoftError):
            raise
        _refuse(channel, message, mandatory, error)
        return
    # Finish before the client's next method, which may use the queues being deleted.
    dropped = yield from commit.drop_repeated()
    if dropped:
        outcome = RECORDED
    if channel.mode == CONFIRM and channel.awaits_reply():
        release = commit.release()
        if release is None:
            channel.confirms.count(late_outcome(connection.core.journal, outcome))
        else:
            channel.confirms.count_commit(release.hold)
    connection.check_publisher(True)


def _checked(channel: ServerChannel, commit: Commit) -> Iterator[int]:
    """Check a commit.  Raises: as `allow_commit` and `Commit.check`."""
    yield from allow_commit(channel, commit)
    if not commit.is_known():
        yield from commit.check()
        # The user's permissions may have changed in the meantime.
        yield from allow_commit(channel, commit)


def allow_commit(channel: ServerChannel, commit: Commit) -> Iterator[int]:
    """Check the user's permissions for a commit's sink, its queues and the dead-letter exchange.

    A commit may name thousands of queues, and each is matched against a permission's regex.  So
    queues are checked again only if the permissions have changed.

    Raises: NotFound (404), AccessRefused (403), PreconditionFailed (406).
    """
    access = channel.connection.access
    while commit.allowed != access.revision:
        revision = access.revision
        _check_sink(channel, commit)
        for name in commit.command.queues:
            access.configure("queue", name)
            yield 1
        commit.allowed = revision
    _check_others(channel, commit)


def _check_sink(channel: ServerChannel, commit: Commit) -> None:
    """Check that the user owns the sink or may become its owner.  Raises: AccessRefused (403)."""
    commit.check_owner()
    if commit.takes():
        _check_right(channel, commit)


def _check_others(channel: ServerChannel, commit: Commit) -> None:
    """Check the sink again, the dead-letter exchange and the transaction.

    Raises: as `allow_commit`.
    """
    access = channel.connection.access
    _check_sink(channel, commit)
    exchange = commit.command.dead_letter_exchange
    if exchange is not None:
        writable(access, channel.vhost, exchange, "")
        check_way(access, channel.vhost, exchange, None)
    if channel.mode == TX:
        names = set(commit.command.queues)
        for publish in channel.transaction.publishes:
            if publish.staging is not None and publish.staging.name in names:
                raise PreconditionFailed(
                    f"invalid commit: messages to queue '{publish.staging.name}' are in "
                    "the same transaction"
                )


def _check_right(channel: ServerChannel, commit: Commit) -> None:
    """Check that the user may become the owner of a sink that is new or has no owner.

    The user of the first commit owns the sink, and no other user can commit to it.

    A staging queue that names the sink in its arguments proves nothing: any user who may declare a
    queue can do that.  A queue with a name that begins with the sink's proves the right to it, and
    so does a queue without an owner, like the sink.  Without such queues the user needs the
    permission to declare one.

    Raises: AccessRefused (403).
    """
    command = commit.command
    sink = command.sink
    channel.connection.scheduler.spent += len(command.queues) // 2
    if any(_shows_right(commit, name) for name in command.queues):
        return
    access = channel.connection.access
    names = (cleaned(sink), cleaned(f"{_SPARKS_STAGING}{sink}."))
    if not any(access.allows(CONFIGURE, name) for name in names):
        raise AccessRefused(
            f"{commit.label} has no owner yet: the first commit, which makes its user the owner, "
            f"requires configure on queue '{sink}' or '{_SPARKS_STAGING}{sink}.'; an existing "
            f"sink can also be given to a user (leveret ctl {GIVE_SINK})"
        )


def _shows_right(commit: Commit, name: Name) -> bool:
    """Return whether a staging queue, which the user may configure, proves a right to the sink."""
    sink = commit.command.sink
    staging = staging_of(commit.vhost.queues.by_name.get(name))
    if staging is not None and staging.staged_by is None and staging.sink == sink:
        return True
    for start in (sink, _SPARKS_STAGING + sink):
        if name.startswith(start) and not name[len(start) : len(start) + 1].isalnum():
            return True
    return False


def _refuse(channel: ServerChannel, message: Message, mandatory: bool, error: SoftError) -> None:
    """Refuse a commit on a channel in confirm mode with a basic.nack, and log the reason."""
    channel.connection.log.append(("error", f"channel {channel.number}: {error}"))
    if mandatory:
        text = error.reply_text.encode("utf-8", "replace")[:SHORT_STRING_BYTES_MAX]
        return_message(channel, message, error.code, text.decode("utf-8", "ignore"))
    channel.confirms.count(REJECTED)


def settle_held(channel: ServerChannel, commit: Commit) -> i64:
    """Settle a commit with its transaction; return the outcome, as `Vhost.publish` does."""
    try:
        outcome = commit.settle()
    except AmqpError as error:
        channel.connection.log.append(("error", f"channel {channel.number}: {error}"))
        return REJECTED | DUPLICATE
    if commit.is_repeated:
        # A transaction may have many commits, so this work is done later.
        channel.connection.scheduler.start_later(commit.drop_repeated())
    return outcome
