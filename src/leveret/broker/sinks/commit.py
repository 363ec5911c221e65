"""A commit, which decides whether a batch of staged messages is published: all of it, or none.

It is a message to the default exchange with the routing key `amq.leveret.commit`.  Its body names
the sink, the batch, its staging queues in order, and the handling of unroutable messages.  It is
checked first: its session checks the user's permissions; each queue is sealed; the staged messages
must be synced, because a crash may keep any part of a journal group; and with `fail` every message
must have a destination.  Then `settle` decides, by one journal record.

A sink is identified by its name and, if the commit has one, its destination.  A commit may also ask
to refuse a batch below the sink's last one, because such a batch is not an accidental repeat.

Invariants: while a commit is checked, nothing more is staged in its queues; a refused commit
changes nothing; a batch that is already committed is recognized, and messages staged for it again
are dropped.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from typing import Final, final

from mypy_extensions import i64

from leveret.broker.attributes.arguments import is_int
from leveret.broker.ownership import Owner, check_owned, is_free_for
from leveret.broker.queue.browse import BrowseFilter, BrowsePass
from leveret.broker.scheduler.costs import ROUTE_RESOLVED
from leveret.broker.scheduler.task import SYNC
from leveret.broker.sinks.area import StagingArea
from leveret.broker.sinks.release import (
    DEAD_LETTER,
    DROP_IT,
    FAIL,
    Release,
    StagedRoutes,
    copies_of,
    header_cost,
    unstaged,
)
from leveret.broker.sinks.sinks import GIVE_SINK
from leveret.broker.sinks.staging import StagingQueue, staging_of
from leveret.broker.vhost.vhost import DUPLICATE, RECORDED
from leveret.errors import AmqpError, NotFound, PreconditionFailed
from leveret.limits import COMMIT_BYTES_MAX, SHORT_STRING_BYTES_MAX, STAGING_QUEUES_PER_COMMIT_MAX
from leveret.message import Message
from leveret.names import Name, cleaned

#: The routing key of a commit.
COMMIT_KEY: Final = "amq.leveret.commit"

_FIELDS: Final = ("sink", "destination", "batch", "queues", "unroutable", "lower")

#: The number of messages of a queue that are checked at once.
_LOOKED_AT_ONCE: Final = 256

#: The length at which an error message cuts the name of an unknown field.
_FIELD_CHARACTERS_QUOTED: Final = 64

#: Values and strings in the JSON of a commit: its queues, and twice its fields.
_VALUES_MAX: Final[i64] = STAGING_QUEUES_PER_COMMIT_MAX + 32

#: The handling of a commit with a batch below the last one of its sink.
LOWER_DROP: Final = "drop"
LOWER_FAIL: Final = "fail"


@final
class CommitRequest:
    """The contents of a commit."""

    def __init__(
        self,
        sink: str,
        destination: str,
        batch: i64,
        queues: list[Name],
        unroutable: str,
        fails_lower: bool,
    ) -> None:
        self.sink: Final = sink
        #: Empty for a sink without a destination.
        self.destination: Final = destination
        self.batch: Final[i64] = batch
        self.queues: Final = queues
        self.unroutable: Final = unroutable
        #: True to refuse a batch below the last one instead of dropping it.
        self.fails_lower: Final = fails_lower

    @property
    def label(self) -> str:
        """The sink's name in errors."""
        return f"sink '{self.sink}'" + (f" to '{self.destination}'" if self.destination else "")

    @property
    def dead_letter_exchange(self) -> Name | None:
        """The exchange for unroutable messages, if any."""
        if self.unroutable.startswith(DEAD_LETTER):
            return Name(self.unroutable[len(DEAD_LETTER) :])
        return None


def read_command(body: bytes) -> CommitRequest:
    """Parse the body of a commit.  Raises: PreconditionFailed (406)."""
    if len(body) > COMMIT_BYTES_MAX:
        raise _malformed(f"it has more than {COMMIT_BYTES_MAX} bytes")
    if _has_many_values(body):
        raise _malformed(f"it has more than {STAGING_QUEUES_PER_COMMIT_MAX} queues")
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        raise _malformed("it is not JSON") from None
    if not isinstance(fields, dict):
        raise _malformed("it is not a JSON object")
    unknown = [name for name in fields if name not in _FIELDS]
    if unknown:
        # JSON can hold unpaired surrogates, which are not valid Unicode text.
        name = unknown[0][:_FIELD_CHARACTERS_QUOTED].encode("utf-8", "replace").decode()
        raise _malformed(f"unknown field '{name}'")
    return CommitRequest(
        _text(fields.get("sink"), "sink"),
        _text(fields["destination"], "destination") if "destination" in fields else "",
        _batch(fields.get("batch")),
        _queues(fields.get("queues")),
        _unroutable(fields.get("unroutable", FAIL)),
        _fails_lower(fields.get("lower", LOWER_DROP)),
    )


def _has_many_values(body: bytes) -> bool:
    """Return whether JSON has more values than a commit: 700,000 of them take 0.15 s to read."""
    if body.count(b",") + body.count(b"[") + body.count(b"{") <= _VALUES_MAX:
        return False
    # The names of queues may contain these characters, which is rare.
    parts = body.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"', 2 * _VALUES_MAX)
    if len(parts) > 2 * _VALUES_MAX:
        return True
    count: i64 = 0
    for part in parts[::2]:
        count += part.count(b",") + part.count(b"[") + part.count(b"{")
    return count > _VALUES_MAX


def _text(value: object, field: str) -> str:
    if not isinstance(value, str) or not value:
        raise _malformed(f"its {field} must be a non-empty string")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        size = SHORT_STRING_BYTES_MAX + 1
    if size > SHORT_STRING_BYTES_MAX:
        raise _malformed(f"its {field} must be a string of 1 to {SHORT_STRING_BYTES_MAX} bytes")
    return value


def _batch(value: object) -> int:
    if not is_int(value) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise _malformed("its batch must be an integer from 0 to 2^63-1")
    return value


def _queues(value: object) -> list[Name]:
    if not isinstance(value, list):
        raise _malformed("its queues must be a list")
    if len(value) > STAGING_QUEUES_PER_COMMIT_MAX:
        raise _malformed(f"it has more than {STAGING_QUEUES_PER_COMMIT_MAX} queues")
    names = [cleaned(_text(name, "queue")) for name in value]
    if len(set(names)) != len(names):
        raise _malformed("it names a queue twice")
    return names


def _unroutable(value: object) -> str:
    if isinstance(value, str):
        if value in (FAIL, DROP_IT):
            return value
        if value.startswith(DEAD_LETTER):
            name = _text(value[len(DEAD_LETTER) :], "dead-letter exchange")
            return DEAD_LETTER + cleaned(name)
    raise _malformed(f"its unroutable must be {FAIL}, {DROP_IT} or {DEAD_LETTER}<exchange>")


def _fails_lower(value: object) -> bool:
    if value not in (LOWER_DROP, LOWER_FAIL):
        raise _malformed(f"its lower must be {LOWER_DROP} or {LOWER_FAIL}")
    return value == LOWER_FAIL


def _malformed(why: str) -> PreconditionFailed:
    return PreconditionFailed(f"invalid commit: {why}")


@final
class Commit:
    """One commit, until it is decided."""

    def __init__(self, area: StagingArea, command: CommitRequest, by: Owner) -> None:
        self.area: Final = area
        self.vhost: Final = area.vhost
        self.command: Final = command
        #: The committing user.
        self.by: Final = by
        #: The permission revision under which the user may commit its queues.
        self.allowed: i64 = -1
        #: Its staging queues, in order.
        self.staged: list[StagingQueue] = []
        #: True once `settle` found that the batch is already committed.
        self.is_repeated = False
        self._routes: Final = StagedRoutes(area.vhost)

    def is_known(self) -> bool:
        """Return whether the batch is already committed."""
        command = self.command
        return self.area.sinks.has(command.sink, command.destination, command.batch, self.by)

    @property
    def label(self) -> str:
        """The sink and its vhost, for errors."""
        return f"{self.command.label} in vhost '{self.vhost.name}'"

    def check_owner(self) -> None:
        """Check that the sink belongs to the user or to nobody, or is new.

        Raises: AccessRefused (403).
        """
        command = self.command
        sink = self.area.sinks.live(command.sink, command.destination, self.by)
        if sink is not None:
            check_owned(sink.owner, self.by, self.label, GIVE_SINK)

    def takes(self) -> bool:
        """Return whether the commit makes its user the owner: the sink is new or has no owner."""
        command = self.command
        sink = self.area.sinks.live(command.sink, command.destination, self.by)
        return sink is None or sink.owner is None

    # -- checking ----------------------------------------------------------------------------------

    def check(self) -> Iterator[int]:
        """Seal the queues, wait until their messages are synced, and check the routes for `fail`.

        Raises: NotFound (404) for an unknown queue or dead-letter exchange; PreconditionFailed
        (406) for a queue of another batch or another commit, and for a message without a
        destination; AccessRefused (403) for a queue that another user staged.
        """
        command = self.command
        vhost = self.vhost
        exchange = command.dead_letter_exchange
        if exchange is not None and exchange not in vhost.exchanges.by_name:
            raise NotFound(f"no {vhost.exchange_label(exchange)}")
        self.area.check_room(command.sink, command.destination, self.by)
        group: i64 = 0
        for name in command.queues:
            staging = self._staging(name)
            staging.sealed = True
            self.staged.append(staging)
            if staging.unrecorded > 0:
                raise PreconditionFailed(
                    f"invalid commit: {vhost.queue_label(name)} has batches that are not confirmed "
                    "yet"
                )
            group = max(group, staging.group)
            yield 1
        core = vhost.core
        if group > core.journal.durable_group:
            core.syncs.wait_in_reply(group)
            yield SYNC
        if command.unroutable == FAIL:
            for staging in self.staged:
                yield from self._look(staging)
            self._routes.clear()

    def _staging(self, name: Name) -> StagingQueue:
        queue = self.vhost.queues.by_name.get(name)
        label = self.vhost.queue_label(name)
        if queue is None:
            raise NotFound(f"no {label}")
        staging = staging_of(queue)
        if staging is None:
            raise PreconditionFailed(f"{label} is not a staging queue")
        command = self.command
        if not staging.is_part_of(command.sink, command.destination, command.batch):
            place = f" to '{staging.destination}'" if staging.destination else ""
            raise PreconditionFailed(
                f"{label} belongs to batch {staging.batch} of sink '{staging.sink}'{place}"
            )
        staging.check_user(self.by)
        staging.check_free()
        if staging.sealed:
            raise PreconditionFailed(f"{label} is being committed already")
        return staging

    def _look(self, staging: StagingQueue) -> Iterator[int]:
        """Check that each message of a queue has a destination.

        Raises: PreconditionFailed (406) for an unroutable message.
        """
        look = BrowsePass(staging, BrowseFilter())
        while not look.ended:
            before = look.looked
            returned = look.next(before + _LOOKED_AT_ONCE)
            if returned is not None:
                self._check_routable(staging, returned.message)
                if staging.is_plain and self._is_routed(staging):
                    # All messages have the same route.
                    return
            yield look.looked - before + 1

    def _is_routed(self, staging: StagingQueue) -> bool:
        """Return whether all messages of a staging queue have a route, which is known."""
        return staging.address is not None and (
            self._routes.find(staging.destination_of(b"")).found is not None
        )

    def _check_routable(self, queue: StagingQueue, message: Message) -> None:
        core = self.vhost.core
        cost = header_cost(message.properties)
        # The headers are read once, and four times if the address was not routed yet.
        core.scheduler.spent += cost // 4
        staged = queue.destination_of(message.properties)
        route = self._routes.find(staged)
        found = route.found
        if found is None or not found.reached():
            core.scheduler.spent += ROUTE_RESOLVED + cost
            letter = unstaged(message, route, core.now_ms)
            found = self._routes.destinations(route, letter, copies_of(letter))
        if not found.reached():
            raise PreconditionFailed(
                f"a message in {self.vhost.queue_label(queue.name)} is unroutable: exchange "
                f"'{staged.exchange.decode('utf-8', 'replace')}', routing key "
                f"'{staged.routing_key.decode('utf-8', 'replace')}'"
            )

    # -- deciding ---------------------------------------------------------------------------------

    def settle(self) -> i64:
        """Decide, or recognize a committed batch; return the outcome as a publish does.

        Messages staged again for a committed batch must still be dropped (`drop_repeated`).

        Raises: PreconditionFailed (406) if a queue was deleted meanwhile, if a batch below the last
        one is to be refused, or for too many sinks; AccessRefused (403) if the sink or a queue now
        belongs to another user.  Then nothing was changed.
        """
        command = self.command
        try:
            self.check_owner()
            self._check_queues()
        except AmqpError:
            self.unseal()
            raise
        if self.is_known():
            self.unseal()
            self._check_lower()
            self.is_repeated = True
            recorded = self.area.repeated(command.sink, command.destination, self.by)
            return RECORDED if recorded else DUPLICATE
        self.area.decide(
            command.sink,
            command.destination,
            command.batch,
            list(self.staged),
            command.unroutable,
            self.by,
        )
        return RECORDED

    def release(self) -> Release | None:
        """Return the release of the settled batch, if it has not ended."""
        command = self.command
        return self.area.release_of(command.sink, command.destination, command.batch, self.by)

    def _check_queues(self) -> None:
        """Check again the state that may have changed since `check`, or since another commit.

        Raises: PreconditionFailed (406), AccessRefused (403).
        """
        command = self.command
        known = self.is_known()
        for staging in self.staged:
            if staging.deleted and not known:
                raise PreconditionFailed(f"{self.vhost.queue_label(staging.name)} is gone")
            staging.check_user(self.by)
        if not known:
            self.area.check_room(command.sink, command.destination, self.by)

    def _check_lower(self) -> None:
        """Refuse a batch below the last one if the commit asks for that.

        Raises: PreconditionFailed (406).
        """
        command = self.command
        last = self.area.sinks.last_batch(command.sink, command.destination, self.by)
        if command.fails_lower and command.batch < last:
            # The number comes first: the text of a basic.return is cut after 255 bytes.
            raise PreconditionFailed(
                f"batch {command.batch} is below {last}, the last batch of {command.label}"
            )

    def drop_repeated(self) -> Generator[int, None, bool]:
        """Delete the queues in which a committed batch was staged again.

        Returns whether there were any.
        """
        command = self.command
        queues = self.vhost.queues
        dropped = False
        for name in command.queues if self.is_repeated else []:
            yield 1
            staging = staging_of(queues.by_name.get(name))
            if staging is None or not is_free_for(staging.staged_by, self.by):
                continue
            if not staging.is_part_of(command.sink, command.destination, command.batch):
                continue
            if staging.release is None and not staging.sealed:
                queues.drop(staging)
                dropped = True
        return dropped

    def unseal(self) -> None:
        """Unseal the queues, because nothing was decided."""
        self._routes.clear()
        for staging in self.staged:
            staging.sealed = False
        self.staged = []
