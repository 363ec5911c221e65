"""Administrators limit a cluster's backlog by a policy, and its producers hear of it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from leveret import Consumer, DeliveryStatus, Producer
from support.brokers.brokers import Broker
from support.clusters.handled import SECONDS, Handled
from support.http.http_api import Api


@pytest.mark.parametrize("partitions", [0, 2])
def test_a_policy_limits_the_backlog_of_a_cluster(
    broker: Broker, topic: str, partitions: int
) -> None:
    if broker.process is None:
        pytest.skip("needs the HTTP API of a broker of its own")
    definition = {"max-length": 5, "overflow": "reject-publish"}
    policy = {"pattern": rf"^{topic}@c(@\d+)?$", "definition": definition}
    with contextlib.closing(Api(broker.process.data_dir / "management.sock")) as api:
        assert api.change("PUT", f"/api/policies/%2F/{topic}", policy) == 201

    async def run() -> None:
        handled = Handled()

        def member() -> Consumer:
            return Consumer(
                topic,
                cluster="c",
                on_message=handled.handler(),
                uri=broker.uri,
                partitions=partitions,
            )

        async with member():
            pass
        async with Producer(topic, uri=broker.uri) as producer:
            statuses = [(await producer.deliver(b"x", "key")).status for _ in range(7)]
            confirmed, refused = DeliveryStatus.CONFIRMED, DeliveryStatus.REFUSED
            assert statuses == [confirmed] * 5 + [refused] * 2
            async with member():
                await handled.count(5)
                assert (await producer.deliver(b"x", "key")).is_confirmed

    asyncio.run(asyncio.wait_for(run(), SECONDS))
