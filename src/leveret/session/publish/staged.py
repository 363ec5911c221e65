"""Publishes that do not simply go to queues: those that are staged, and the commits of batches.

A message to a staging queue is checked as if it went to the exchange that its headers name: a user
who may not write there is refused at once.  Its CC and BCC are kept, and count when it goes on.

A commit may take several turns.  The connection is halted meanwhile (`HALT_COMMIT`), so that all
that came after it is done after it, and confirms stay in order.  On a confirming channel a refused
commit is a basic.nack, after a basic.return that says why if it was mandatory; else the channel
closes.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.queue.target import Destinations
from leveret.broker.scheduler.task import EndWaiter
from leveret.broker.staging.area import area_of
from leveret.broker.staging.commit import Commit, read_command
from leveret.broker.staging.sinks import GIVE_SINK
from leveret.broker.staging.staging import staging_of
from leveret.broker.values.permission import CONFIGURE
from leveret.broker.vhost.vhost import DUPLICATE, RECORDED, REJECTED
from leveret.errors import AccessRefused, AmqpError, PreconditionFailed, SoftError
from leveret.limits import SHORT_STRING_BYTES_MAX, STEPS_PER_SLICE
from leveret.message import Message
from leveret.names import Name, cleaned
from leveret.session.channel.channel import CONFIRM, TX, Channel
from leveret.session.channel.transaction import TxPublish
from leveret.session.publish.inspect import Inspected, addressed, inspect
from leveret.session.publish.route import (
    Route,
    check_copies,
    check_publisher,
    from_utf8,
    return_message,
    writable,
)
from leveret.session.publish.topic_access import check_way
from leveret.session.states import HALT_COMMIT, OPEN
from leveret.wire.methods import BasicPublish
from leveret.wire.staged import read_staged

#: How the names of Spark's staging queues begin, behind which the sink's comes.
_SPARKS_STAGING: Final = "leveret.staging."


def accept_special(channel: Channel, route: Route, properties: bytes, body: bytes) -> None:
    """Stage a message, or commit a batch.

    Raises: NotFound (404), AccessRefused (403), PreconditionFailed (406).
    """
    connection = channel.connection
    if route.commits:
        route.exchange.published_in += 1
        message = Message(route.address, properties, body, connection.turn.now_ms, False)
        _commit(channel, message, route.mandatory)
    else:
        _stage(channel, route, properties, body)


# -- staging ---------------------------------------------------------------------------------------


def _stage(channel: Channel, route: Route, properties: bytes, body: bytes) -> None:
    """Put a message into its staging queue, or into the transaction."""
    staging = route.staging
    assert staging is not None
    connection = channel.connection
    owner = connection.access.owner
    staging.check_user(owner)
    inspected = inspect(channel, properties) or Inspected(properties, [], b"")
    _check_destination(channel, inspected.properties, inspected.more_keys)
    if inspected.numbered:
        check_publisher(channel.vhost, inspected.properties, route.targets, owner)
    route.exchange.published_in += 1
    connection.count_published(len(body))
    # What is staged is kept whatever its delivery mode is; that counts when it goes on.
    message = Message(
        addressed(route.address, inspected),
        inspected.properties,
        body,
        connection.turn.now_ms,
        True,
        False,
        inspected.numbered,
    )
    if channel.mode == TX:
        channel.transaction.hold(TxPublish(message, route, route.mandatory, staging))
        connection.check_publisher(True)
        return
    outcome = staging.stage(message, owner)
    if channel.mode == CONFIRM:
        channel.confirms.count(outcome)
    connection.check_publisher(outcome & RECORDED != 0)


def _check_destination(channel: Channel, properties: bytes, copies: list[str]) -> None:
    """Check that the user may publish where a staged message is to go.

    Raises: NotFound (404), AccessRefused (403), PreconditionFailed (406).
    """
    staged = read_staged(properties)
    name, key = from_utf8(staged.exchange, staged.routing_key)
    exchange = writable(channel.connection.access, channel.vhost, Name(name), key)
    if copies:
        check_copies(channel, exchange, key, copies, properties)


# -- commits ---------------------------------------------------------------------------------------


@final
class ChannelCommit(Commit):
    """The commit that a channel asked for by `message`."""

    def __init__(self, channel: Channel, message: Message, mandatory: bool) -> None:
        owner = channel.connection.access.owner
        super().__init__(area_of(channel.vhost), read_command(message.body), owner)
        self.channel = channel
        self.message = message
        self.mandatory = mandatory
        #: How many of its queues the user may commit, by his rights of that revision.
        self._allowed: i64 = 0
        self._revision: i64 = channel.connection.access.revision

    def allow(self, last: i64) -> bool:
        """Check the user's rights until `Turn.steps` is at `last`; return whether all are checked.

        These are his rights to the sink, its queues and the dead-letter exchange.  A commit may
        name thousands of queues, and each is compared with the pattern of a permission.

        Raises: NotFound (404), AccessRefused (403), PreconditionFailed (406).
        """
        access = self.channel.connection.access
        turn = self.turn
        if self._revision != access.revision:
            self._revision = access.revision
            self._allowed = 0
        if self._allowed == 0:
            self._check_sink()
        queues = self.command.queues
        while self._allowed < len(queues):
            if turn.steps >= last:
                return False
            turn.steps += 1
            access.configure("queue", queues[self._allowed])
            self._allowed += 1
        self._check_others()
        return True

    def _check_sink(self) -> None:
        """Check that the sink is the user's.  Raises: AccessRefused (403)."""
        self.check_owner()
        if self.takes():
            self._check_right()

    def _check_others(self) -> None:
        """Check the sink again, the dead-letter exchange, the transaction.  Raises: as `allow`."""
        channel = self.channel
        access = channel.connection.access
        self._check_sink()
        exchange = self.command.dead_letter_exchange
        if exchange is not None:
            writable(access, channel.vhost, exchange, "")
            check_way(access, channel.vhost, exchange, None)
        if channel.mode == TX:
            names = set(self.command.queues)
            for publish in channel.transaction.publishes:
                if publish.staging is not None and publish.staging.name in names:
                    raise PreconditionFailed(
                        f"invalid commit: messages to queue '{publish.staging.name}' are in "
                        "the same transaction"
                    )

    def _check_right(self) -> None:
        """Check that the user may become the owner of a sink that is new or has no owner.

        The user of the first commit owns the sink, and no other user can commit to it.

        That a staging queue names the sink shows no right to it: any user who may declare a queue
        can name it.  A queue whose own name begins with the sink's shows one, and so does a queue
        that has no owner, like the sink; else the user needs the right to declare such a queue.

        Raises: AccessRefused (403).
        """
        sink = self.command.sink
        self.turn.steps += len(self.command.queues) // 2
        if any(self._shows_right(name) for name in self.command.queues):
            return
        access = self.channel.connection.access
        names = (cleaned(sink), cleaned(f"{_SPARKS_STAGING}{sink}."))
        if not any(access.allows(CONFIGURE, name) for name in names):
            raise AccessRefused(
                f"{self.label} has no owner yet: the first commit, which makes its user the owner, "
                f"requires configure on queue '{sink}' or '{_SPARKS_STAGING}{sink}.'; an existing "
                f"sink can also be given to a user (leveret ctl {GIVE_SINK})"
            )

    def _shows_right(self, name: Name) -> bool:
        """Return whether a staging queue that the user may configure shows a right to the sink."""
        staging = staging_of(self.vhost.queues.by_name.get(name))
        if staging is not None and staging.staged_by is None and staging.sink == self.command.sink:
            return True
        for start in (self.command.sink, _SPARKS_STAGING + self.command.sink):
            if name.startswith(start) and not name[len(start) : len(start) + 1].isalnum():
                return True
        return False

    def judged(self, error: AmqpError | None) -> None:
        """Settle it, or refuse it, and resume the connection."""
        channel = self.channel
        connection = channel.connection
        channel.commit_decided()
        if self.abandoned:
            self.unseal()
        else:
            if error is None:
                error = self.finish()
            if error is not None:
                self._refuse_late(error)
        if connection.state == OPEN:
            connection.run()
            connection.wake()

    def finish(self) -> AmqpError | None:
        """Settle it, or hold it for the transaction; return why that cannot be."""
        channel = self.channel
        try:
            if channel.mode == TX:
                self.is_held = True
                channel.transaction.hold(
                    TxPublish(self.message, Destinations([]), self.mandatory, None, self)
                )
                return None
            outcome = self.settle()
        except AmqpError as error:
            return error
        if channel.mode == CONFIRM:
            channel.confirms.count(outcome)
        dropping = self.dropping
        if dropping is not None:
            # What the client asks for next may be about queues that are still to go.
            channel.connection.halt(HALT_COMMIT)
            dropping.tell(Resuming(channel))
        return None

    def _refuse_late(self, error: AmqpError) -> None:
        """Refuse it after the connection was halted for it."""
        self.unseal()
        if self.channel.mode == CONFIRM and isinstance(error, SoftError):
            refuse(self.channel, self.message, self.mandatory, error)
            return
        if error.class_id == 0:
            error.class_id = BasicPublish.CLASS_ID
            error.method_id = BasicPublish.METHOD_ID
        self.channel.connection.fail_channel(self.channel.number, error)


@final
class Resuming(EndWaiter):
    """Has a channel's connection go on once the queues of a repeated batch are deleted."""

    def __init__(self, channel: Channel) -> None:
        self._channel: Final = channel

    def work_ended(self) -> None:
        """Parse on."""
        connection = self._channel.connection
        connection.end_halt(HALT_COMMIT)
        if connection.state == OPEN:
            connection.run()
            connection.wake()


def _commit(channel: Channel, message: Message, mandatory: bool) -> None:
    """Check a commit; settle it now, or halt the connection until it is decided."""
    commit: ChannelCommit | None = None
    try:
        commit = ChannelCommit(channel, message, mandatory)
        prepared = commit.prepare(channel.connection.turn.steps + STEPS_PER_SLICE)
    except SoftError as error:
        if commit is not None:
            commit.unseal()
        channel.connection.count_published(len(message.body))
        if channel.mode != CONFIRM:
            raise
        refuse(channel, message, mandatory, error)
        return
    # From here on its queues are sealed, or some of them.
    channel.connection.count_published(len(message.body))
    if not prepared:
        commit.schedule()
    elif commit.is_known() or commit.begin():
        refusal = commit.finish()
        if refusal is not None:
            commit.unseal()
            if channel.mode != CONFIRM or not isinstance(refusal, SoftError):
                raise refusal
            refuse(channel, message, mandatory, refusal)
        channel.connection.check_publisher(True)
        return
    channel.await_commit(commit)


def refuse(channel: Channel, message: Message, mandatory: bool, error: SoftError) -> None:
    """Refuse a commit on a confirming channel by a basic.nack, and log why."""
    channel.connection.log.append(("error", f"channel {channel.number}: {error}"))
    if mandatory:
        text = error.reply_text.encode("utf-8", "replace")[:SHORT_STRING_BYTES_MAX]
        return_message(channel, message, error.code, text.decode("utf-8", "ignore"))
    channel.confirms.count(REJECTED)


def settle_held(channel: Channel, commit: Commit) -> i64:
    """Settle a commit with its transaction; return what a publish would."""
    try:
        return commit.settle()
    except AmqpError as error:
        channel.connection.log.append(("error", f"channel {channel.number}: {error}"))
        return REJECTED | DUPLICATE
