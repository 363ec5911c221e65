"""Staged batches: queues with the messages of tasks until one commit makes all of them visible.

A task publishes into its own queue without consumers; the driver's commit names all queues of the
batch in one message, and the broker, having journaled that one decision, moves their messages to
their destinations.  A batch that was committed before is recognised by its sink's name, its
destination and its number, and dropped; one below the sink's last is an error, unless `lowerBatch`
says otherwise.  Batches that are never committed expire.

Invariant: a commit is requested only while every queue holds as many messages as were confirmed
into it, so that no expired or purged message is missing unnoticed.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from leveret.client import BasicProperties, PublishFailed
from leveret.client.blocking import Channel
from leveret.errors import NotFound, PreconditionFailed, SoftError
from leveret.spark.connection.connecting import INTERRUPTIONS, interrupted
from leveret.spark.connection.retries import ask
from leveret.spark.write.link import WriteError, close_link, open_link
from leveret.spark.write.options import WriteOptions
from leveret.spark.write.rows import STAGED_EXCHANGE, STAGED_ROUTING_KEY

#: The routing key, on the default exchange, of the commit message.
COMMIT_KEY: Final = "amq.leveret.commit"

SINK_ARGUMENT: Final = "x-staging-sink"
BATCH_ARGUMENT: Final = "x-staging-batch"
DESTINATION_ARGUMENT: Final = "x-staging-destination"
EXCHANGE_ARGUMENT: Final = "x-staging-exchange"
ROUTING_KEY_ARGUMENT: Final = "x-staging-routing-key"

#: The broker's refusal of a batch below the last one of its sink.
_LOWER: Final = re.compile(r"batch \d+ is below (\d+), the last batch of sink")

log = logging.getLogger("leveret.spark")


@dataclass(frozen=True, slots=True)
class Job:
    """A unit of writing: batch `batch` of the sink with that name and destination."""

    sink: str
    batch: int
    destination: str

    @property
    def title(self) -> str:
        """The batch's name in logs and errors."""
        return f"batch {self.batch} of sink {self.sink!r} to {self.destination!r}"


@dataclass(frozen=True, slots=True)
class StagedCount:
    """A staging queue and the number of messages in it."""

    queue: str
    count: int


class TaskQueue:
    """A task's own queue, declared on its channel; each attempt of a task declares a new one.

    It expires if it is not used for a long time: no publish and no declare.
    """

    def __init__(
        self,
        channel: Channel,
        options: WriteOptions,
        job: Job,
        partition: int,
        one_place: tuple[str, str] | None = None,
    ) -> None:
        self.name = f"leveret.staging.{job.sink}.{job.batch}.{partition}.{secrets.token_hex(8)}"
        self._channel = channel
        arguments: dict[str, object] = {
            "x-queue-type": "classic",
            SINK_ARGUMENT: job.sink,
            BATCH_ARGUMENT: job.batch,
            DESTINATION_ARGUMENT: job.destination,
            "x-expires": options.staging_expiry_ms,
        }
        if one_place is not None:
            # A queue or a stream then takes over the batch as it is.
            arguments[EXCHANGE_ARGUMENT], arguments[ROUTING_KEY_ARGUMENT] = one_place
        channel.queue_declare(self.name, durable=True, arguments=arguments)

    def staged(self, count: int) -> StagedCount:
        """Check that everything sent is in the queue.  Raises: WriteError."""
        staged = StagedCount(self.name, count)
        check_staged(self._channel, [staged])
        return staged


def check_staged(channel: Channel, queues: Sequence[StagedCount]) -> bool:
    """Check that queues contain the staged messages, and postpone their expiry; False if empty.

    They are empty if the broker has committed the batch before: it then drops repeated messages.

    Raises: WriteError.
    """
    counts = [_count(channel, staged) for staged in queues]
    for staged, count in zip(queues, counts, strict=True):
        if count != staged.count and any(counts):
            raise WriteError(
                f"the staging queue {staged.queue!r} holds {count} messages, not {staged.count}: "
                "messages were removed from it; nothing of the batch was published"
            )
    return any(counts)


def check_dropped(channel: Channel, staged: StagedCount) -> None:
    """Check that the broker drops messages to an empty staging queue, as after a commit.

    Raises: WriteError if something else has emptied the queue.
    """
    headers: dict[str, object] = {STAGED_EXCHANGE: "", STAGED_ROUTING_KEY: staged.queue}
    properties = BasicProperties(headers=headers, delivery_mode=2)
    channel.publish(b"", "", staged.queue, properties, mandatory=True)
    if _count(channel, staged) > 0:
        raise WriteError(
            f"the staging queue {staged.queue!r} was emptied by another client; nothing of the "
            "batch was published"
        )


def _count(channel: Channel, staged: StagedCount) -> int:
    """Return the number of messages in a staging queue.  Raises: WriteError."""
    try:
        return channel.queue_declare(staged.queue, passive=True).message_count
    except NotFound as error:
        raise WriteError(
            f"the staging queue {staged.queue!r} is gone: it expired (option stagingExpiryMs), or "
            "was deleted; nothing of the batch was published"
        ) from error


def commit(options: WriteOptions, job: Job, staged: Sequence[StagedCount]) -> bool:
    """Commit a batch exactly once; return whether it was committed before.

    When it returns, all messages of the batch are in their destinations, on the broker's disk.  A
    commit without a reply is requested again: the broker recognises it if it was decided.

    Raises: WriteError if the broker refuses, also for a batch below the last one, or does not
    confirm in time; Interrupted.
    """
    asked = _CommitState()
    ask(options, f"the commit of {job.title}", lambda: _commit_once(options, job, staged, asked))
    return asked.known


class _CommitState:
    """Whether a commit was sent and not answered, and whether the batch was committed before."""

    def __init__(self) -> None:
        self.unanswered = False
        self.known = False


def _commit_once(
    options: WriteOptions, job: Job, staged: Sequence[StagedCount], asked: _CommitState
) -> None:
    """Request the commit.  Raises: WriteError; Interrupted."""
    command = {
        "sink": job.sink,
        "destination": job.destination,
        "lower": options.lower_batch,
        "batch": job.batch,
        "queues": [one.queue for one in staged],
        "unroutable": options.unroutable,
    }
    connection = open_link(options)
    try:
        channel = connection.channel()
        channel.confirm_select()
        if not asked.unanswered and not check_staged(channel, staged):
            check_dropped(channel, staged[0])
            asked.known = True
        properties = BasicProperties(content_type="application/json", delivery_mode=2)
        asked.unanswered = True
        _publish(channel, json.dumps(command).encode(), properties, options, job)
    except (PublishFailed, SoftError) as error:
        asked.unanswered = False
        if (lower := _LOWER.search(str(error))) is not None:
            raise _set_back(options, job, int(lower[1])) from error
        raise WriteError(f"the broker refused {job.title}: {error}") from error
    except INTERRUPTIONS as error:
        raise interrupted(error) from error
    finally:
        close_link(connection)


def _publish(
    channel: Channel, body: bytes, properties: BasicProperties, options: WriteOptions, job: Job
) -> None:
    """Publish a commit and wait for its confirm.  Raises: WriteError; the channel's error."""
    sequence = channel.publish_nowait(body, "", COMMIT_KEY, properties, mandatory=True)
    confirms = channel.session.confirms
    seconds = options.confirm_timeout_ms / 1000
    until = time.monotonic() + seconds
    if confirms is not None and not channel.connection.run_until(
        lambda: confirms.settled_to(sequence), until
    ):
        raise WriteError(
            f"{job.title} is committed, but not all of its messages are in their queues after "
            f"{seconds:.0f} s (option confirmTimeoutMs): a queue is full and rejects messages "
            "(x-overflow=reject-publish), or the broker's disk is full. They follow when there is "
            "room; a repeated write of the batch waits for them"
        )
    channel.wait_for_confirms()


def _set_back(options: WriteOptions, job: Job, last: int) -> WriteError:
    """Return the error for a batch below the last one of its sink."""
    if options.write_id is not None:
        remedy = "set another writeId, or delete the sink"
    else:
        remedy = "start the query with a new checkpoint, or delete the sink"
    return WriteError(
        f"{job.title} is below the last one that was written, {last}: its checkpoint or its "
        f"numbers were set back, and all batches up to {last} would be dropped. To begin anew "
        f"{remedy} (leveret ctl delete_sink {job.sink}, or DELETE /api/sinks/<vhost>/<sink>); to "
        "have such batches dropped set the option lowerBatch to drop"
    )


def discard(options: WriteOptions, queues: Sequence[str]) -> None:
    """Delete staging queues if that is possible now; the others expire.

    The broker keeps those of a batch that was committed after all.
    """
    if not queues:
        return
    try:
        connection = open_link(options)
        try:
            for queue in queues:
                _delete(connection.channel(), queue)
        finally:
            close_link(connection)
    except Exception as error:  # noqa: BLE001  the write has failed already, of another reason
        log.warning("%d staging queues are left to expire: %s", len(queues), error)


def _delete(channel: Channel, queue: str) -> None:
    """Delete a staging queue that is not committed."""
    try:
        channel.queue_delete(queue)
        channel.close()
    except PreconditionFailed as error:
        log.info("staging queue %r stays: %s", queue, error)
