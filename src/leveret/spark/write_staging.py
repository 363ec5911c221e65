"""Staged batches: queues that hold what tasks wrote until one commit shows all of it.

A task publishes into a queue of its own that nobody consumes from; the driver's commit names all
queues of the batch in one message, and the broker, having journalled that one decision, hands their
messages on to where they belong.  A batch that was committed before is recognised by its sink's
name and its number, and dropped.  What is never committed expires.

Invariant: a commit is asked for only while every queue holds as many messages as were confirmed
into it, so that nothing that expired, or was purged, is missing in silence.
"""

from __future__ import annotations

import json
import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from leveret.client import BasicProperties, PublishFailed
from leveret.client.blocking import Channel
from leveret.errors import NotFound
from leveret.spark.transports.amqp import INTERRUPTIONS
from leveret.spark.transports.base import Interrupted
from leveret.spark.write_link import WriteError, close_link, open_link
from leveret.spark.write_options import WriteOptions

#: The routing key, on the default exchange, of the message that commits.
COMMIT_KEY: Final = "amq.leveret.commit"

SINK_ARGUMENT: Final = "x-staging-sink"
BATCH_ARGUMENT: Final = "x-staging-batch"

log = logging.getLogger("leveret.spark")


@dataclass(frozen=True, slots=True)
class Job:
    """What is written as one: batch `batch` of the sink of that name."""

    sink: str
    batch: int


@dataclass(frozen=True, slots=True)
class Staged:
    """A staging queue and how many messages are in it."""

    queue: str
    count: int


class StagingQueue:
    """A task's own queue, declared on its channel; each attempt at a task makes a new one."""

    def __init__(self, channel: Channel, options: WriteOptions, job: Job, partition: int) -> None:
        self.name = f"leveret.staging.{job.sink}.{job.batch}.{partition}.{secrets.token_hex(8)}"
        self._channel = channel
        self._expiry_ms = options.staging_expiry_ms
        arguments: dict[str, object] = {
            "x-queue-type": "classic",
            SINK_ARGUMENT: job.sink,
            BATCH_ARGUMENT: job.batch,
            "x-expires": self._expiry_ms,
        }
        channel.queue_declare(self.name, durable=True, arguments=arguments)
        self._renewed = time.monotonic()

    def renew(self) -> None:
        """Have the queue expire later, when a quarter of its time is over."""
        if time.monotonic() - self._renewed > self._expiry_ms / 4000:
            self._channel.queue_declare(self.name, passive=True)
            self._renewed = time.monotonic()

    def staged(self, count: int) -> Staged:
        """Check that all that was sent is there.  Raises: WriteError."""
        staged = Staged(self.name, count)
        check_staged(self._channel, staged)
        return staged


def check_staged(channel: Channel, staged: Staged) -> None:
    """Check that a queue holds what was staged, and have it expire later.  Raises: WriteError."""
    try:
        count = channel.queue_declare(staged.queue, passive=True).message_count
    except NotFound as error:
        raise WriteError(
            f"the staging queue {staged.queue!r} is gone: it expired (option stagingExpiryMs), or "
            "was deleted; nothing of the batch was published"
        ) from error
    if count != staged.count:
        raise WriteError(
            f"the staging queue {staged.queue!r} holds {count} messages, not {staged.count}: a "
            "policy or a person took some away; nothing of the batch was published"
        )


def commit(options: WriteOptions, job: Job, staged: Sequence[Staged]) -> None:
    """Have the broker publish a batch, once and for all.

    When it returns, the decision is on the broker's disk.

    Raises: WriteError when the broker refuses; Interrupted when its answer did not come, so that
    the batch may be committed or not: it is to be written again, and is then recognised.
    """
    body = json.dumps(
        {
            "sink": job.sink,
            "batch": job.batch,
            "queues": [one.queue for one in staged],
            "unroutable": options.unroutable,
        }
    )
    connection = open_link(options)
    try:
        channel = connection.channel()
        channel.confirm_select()
        for one in staged:
            check_staged(channel, one)
        properties = BasicProperties(content_type="application/json", delivery_mode=2)
        channel.publish(body.encode(), "", COMMIT_KEY, properties, mandatory=True)
    except PublishFailed as error:
        raise WriteError(
            f"the broker refused batch {job.batch} of sink {job.sink!r}: {error}"
        ) from error
    except INTERRUPTIONS as error:
        raise Interrupted(
            f"no answer to the commit of batch {job.batch}: {type(error).__name__}: {error}"
        ) from error
    finally:
        close_link(connection)


def discard(options: WriteOptions, queues: Sequence[str]) -> None:
    """Delete staging queues as far as that can be done now; the others expire."""
    if not queues:
        return
    try:
        connection = open_link(options)
        try:
            channel = connection.channel()
            for queue in queues:
                channel.queue_delete(queue)
        finally:
            close_link(connection)
    except Exception as error:  # noqa: BLE001  the write has failed already, of another reason
        log.warning("%d staging queues are left to expire: %s", len(queues), error)
