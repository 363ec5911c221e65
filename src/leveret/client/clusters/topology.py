"""Declaration, check and deletion of the exchanges and queues of a topic and a cluster.

The topic is a fanout exchange, to which each cluster binds its own exchange: a fanout for a shared
queue, or an `x-consistent-hash` for partitions.  Partition queues are bound permanently, so that a
key stays in its partition when members join or leave.

The queues are of type `quorum`, because these are durable and count deliveries on both Leveret and
RabbitMQ.  The broker compares a queue's arguments at each declare, so that a member with different
settings gets an error.  Of an exchange's arguments it compares only `alternate-exchange`.  A
cluster's exchange therefore has an alternate exchange that does not exist, but whose name contains
the number of partitions.

Invariant: the cluster's exchange is bound to the topic last, after every partition has a queue, so
that no message is routed to an incomplete set of partitions.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from leveret.client.clusters.outcome import ClusterDeleted, ClusterMismatch
from leveret.errors import NotFound, PreconditionFailed
from leveret.limits import CLUSTER_DELIVERIES_MAX, CLUSTER_PARTITIONS_MAX

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from leveret.client.asynchronous import Channel
    from leveret.client.clusters.names import ClusterNames
    from leveret.client.clusters.settings import MemberSettings

#: The weight of each partition on the hash ring, with which shares differ by about 3 %.
_WEIGHT: Final = "20"

#: The first RabbitMQ version whose quorum queues delay requeued messages.
_RABBITMQ_WITH_DELAYED_RETRY: Final = (4, 3)


def delays_retries(server_properties: Mapping[str, object]) -> bool:
    """Return whether the broker delays requeued messages.

    Leveret does, under any product name that it reports, and so does RabbitMQ since 4.3.
    """
    if "Leveret" in f"{server_properties.get('product')} {server_properties.get('platform')}":
        return True
    version = str(server_properties.get("version", "")).split(".")[:2]
    if server_properties.get("product") != "RabbitMQ" or not all(v.isdigit() for v in version):
        return False
    return tuple(map(int, version)) >= _RABBITMQ_WITH_DELAYED_RETRY


def queue_arguments(settings: MemberSettings) -> dict[str, object]:
    """Return the arguments of a cluster's queues."""
    names = settings.names
    arguments: dict[str, object] = {
        "x-queue-type": "quorum",
        "x-delivery-limit": CLUSTER_DELIVERIES_MAX,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": names.dead_letters,
    }
    if names.partitions:
        return arguments | {"x-single-active-consumer": True}
    return arguments | {
        "x-delayed-retry-type": "returned",
        "x-delayed-retry-min": round(settings.retry_delay * 1000),
        "x-delayed-retry-max": round(settings.retry_delay_max * 1000),
    }


async def declare_topic(channel: Channel, topic: str) -> None:
    """Declare the exchange of a topic.

    Raises: ClusterMismatch when an exchange of another type has its name; AccessRefused (403).
    """
    await _agreed(
        channel.exchange_declare(topic, "fanout"),
        f"topic {topic!r}: an exchange of this name exists and is not a durable fanout exchange; "
        "choose another name for the topic, or delete that exchange",
    )


async def declare_cluster(channel: Channel, settings: MemberSettings) -> None:
    """Declare all exchanges and queues of the cluster, or check those that exist.

    Raises: ClusterMismatch; AccessRefused (403); CommandInvalid (503) if the broker does not
    support the exchange type needed for partitions.
    """
    names = settings.names
    await declare_topic(channel, names.topic)
    await _agreed(
        channel.queue_declare(names.dead_letters),
        f"cluster {names.exchange!r}: its dead-letter queue {names.dead_letters!r} exists with "
        "other arguments; delete that queue",
    )
    await _agreed(
        channel.exchange_declare(
            names.exchange,
            "x-consistent-hash" if names.partitions else "fanout",
            arguments={"alternate-exchange": names.layout},
        ),
        f"cluster {names.exchange!r} exists with another number of partitions than "
        f"{names.partitions}; use its number, or delete the cluster and its backlog first",
    )
    arguments = queue_arguments(settings)
    weight = _WEIGHT if names.partitions else ""
    for queue in names.queues:
        await _agreed(
            channel.queue_declare(queue, arguments=arguments),
            f"cluster {names.exchange!r}: its queue {queue!r} exists with other arguments; all "
            "members use the same retry_delay and retry_delay_max, and another program that "
            "declares the queue uses the documented arguments",
        )
    await asyncio.gather(*(channel.queue_bind(q, names.exchange, weight) for q in names.queues))
    await channel.exchange_bind(names.exchange, names.topic)


async def check_cluster(channel: Channel, names: ClusterNames) -> None:
    """Check that the cluster was not deleted.  Raises: ClusterDeleted."""
    try:
        await channel.exchange_declare(names.exchange, passive=True)
    except NotFound:
        raise ClusterDeleted(
            f"cluster {names.exchange!r} was deleted while this member was in it"
        ) from None


async def delete_cluster(channel: Channel, names: ClusterNames, *, dead_letters: bool) -> int:
    """Delete a cluster with its backlog; return the number of its ready messages.

    The exchange is deleted first, so that no more messages arrive and members notice the deletion.
    The queues of all possible partitions are deleted, since deleting a nonexistent queue is not an
    error.  Raises: AccessRefused (403).
    """
    await channel.exchange_delete(names.exchange)
    queues = [names.exchange, *(names.queue(number) for number in range(CLUSTER_PARTITIONS_MAX))]
    counts = await asyncio.gather(*(channel.queue_delete(queue) for queue in queues))
    if dead_letters:
        await channel.queue_delete(names.dead_letters)
    return sum(counts)


async def _agreed(declare: Awaitable[object], otherwise: str) -> None:
    """Wait for a declare.  Raises: ClusterMismatch with the text `otherwise` if it is refused."""
    try:
        await declare
    except PreconditionFailed as error:
        raise ClusterMismatch(f"{otherwise} (the broker says: {error.text})") from error
