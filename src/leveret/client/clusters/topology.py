"""The exchanges and queues of a topic and a cluster: how they are declared, checked and deleted.

The exchange of the topic is a fanout, to which each cluster binds an exchange of its own: a fanout
for one shared queue, or an `x-consistent-hash` for partitions.  The queues of partitions are bound
permanently, so that a key stays in its partition whichever members join or leave.

The queues are of type `quorum`: durable, and with counted deliveries, on Leveret as on RabbitMQ.
The broker compares a queue's arguments at each declare, so that a member with different settings
gets an error.  It does not compare those of an exchange, except `alternate-exchange`: the exchange
of a cluster has one that does not exist and whose name contains the number of partitions.

Invariant: the exchange is bound to the topic last, when every partition has its queue, so that no
message is routed to an incomplete set of partitions.
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

#: Each partition's weight on the hash ring: with this weight, shares differ by about 3 %.
_WEIGHT: Final = "20"

#: The first version of RabbitMQ whose quorum queues delay returned messages.
_RABBITMQ_WITH_DELAYED_RETRY: Final = (4, 3)


def delays_retries(server_properties: Mapping[str, object]) -> bool:
    """Return whether the broker itself delays messages that are returned to a queue.

    Leveret does, whatever product name it reports, and RabbitMQ from 4.3 on.
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
        f"topic {topic!r}: an exchange of this name exists and is no durable fanout exchange; "
        "choose another name for the topic, or delete that exchange",
    )


async def declare_cluster(channel: Channel, settings: MemberSettings) -> None:
    """Declare all parts of the cluster; existing ones must have the same arguments.

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

    Its exchange is deleted first, so that no more messages arrive and members notice that the
    cluster is gone.  The queues of all possible partitions are deleted, since deleting a queue
    that does not exist is no error.  Raises: AccessRefused (403).
    """
    await channel.exchange_delete(names.exchange)
    queues = [names.exchange, *(names.queue(number) for number in range(CLUSTER_PARTITIONS_MAX))]
    counts = await asyncio.gather(*(channel.queue_delete(queue) for queue in queues))
    if dead_letters:
        await channel.queue_delete(names.dead_letters)
    return sum(counts)


async def _agreed(declare: Awaitable[object], otherwise: str) -> None:
    """Wait for a declare.  Raises: ClusterMismatch, with the text `otherwise`, on a difference."""
    try:
        await declare
    except PreconditionFailed as error:
        raise ClusterMismatch(f"{otherwise} (the broker says: {error.text})") from error
