"""What an older build made beyond a limit that is lower now: it works, and cannot be made anew."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest

from kept.filling import commit, uri_of
from kept.larger import KEYS, LONG, NAME, PARTITIONS, SINKS, WIDE
from kept.make import HERE
from kept.reading import take
from leveret.client import BasicProperties
from leveret.client.blocking import Channel, connect
from leveret.client.errors import Returned
from leveret.errors import PreconditionFailed
from leveret.limits import COPY_KEYS_MAX, SINKS_PER_VHOST_MAX, SUPER_STREAM_PARTITIONS_MAX
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    need_own_broker()
    place = tmp_path_factory.mktemp("larger")
    with zipfile.ZipFile(HERE / f"{NAME}.zip") as packed:
        packed.extractall(place)
    with BrokerProcess(place / "data", settings=LONG) as started:
        yield started


@pytest.fixture
def channel(broker: BrokerProcess) -> Iterator[Channel]:
    with connect(uri_of(broker, "/")) as connection:
        channel = connection.channel()
        channel.confirm_select()
        yield channel


def test_a_super_stream_with_more_partitions_works(channel: Channel) -> None:
    assert PARTITIONS > SUPER_STREAM_PARTITIONS_MAX
    assert channel.queue_declare("wide", durable=True, arguments=WIDE).message_count == 20
    channel.publish(b"another", "wide", KEYS[20], mandatory=True)
    with channel.connection.channel() as reader:
        reader.qos(prefetch_count=10)
        offset: dict[str, Any] = {"x-stream-offset": "first"}
        with reader.consume("wide", inactivity_timeout=30, arguments=offset) as found:
            bodies = set()
            for message in found:
                bodies.add(message.body)
                message.ack()
                if len(bodies) == 21:
                    break
    assert bodies == {key.encode() for key in KEYS[:20]} | {b"another"}
    # A partition that is missing comes back with its number.
    channel.queue_delete("wide-999")
    channel.queue_declare("wide", durable=True, arguments=WIDE)
    assert channel.queue_declare("wide-999", passive=True).message_count == 0
    # Once it is deleted, no other can be made like it.
    channel.queue_delete("wide")
    with pytest.raises(PreconditionFailed, match="expected 1 to 256, got 1000"):
        channel.queue_declare("wide", durable=True, arguments=WIDE)


def test_messages_are_routed_by_more_keys(channel: Channel) -> None:
    """By a rejection, and by the release of a staged batch."""
    message = channel.get("rejected")
    assert message is not None
    assert message.body == b"rejected"
    assert message.properties.headers == {"CC": KEYS[:-1]}
    assert len(KEYS) - 1 > COPY_KEYS_MAX
    message.reject(requeue=False)
    commit(channel, "copies", 2, ["staged"])
    assert sorted(found.body for found in take(channel, "last", 2)) == [b"rejected", b"staged"]


def test_no_message_is_published_with_more_keys(channel: Channel) -> None:
    properties = BasicProperties(headers={"CC": KEYS[: COPY_KEYS_MAX + 1]})
    with pytest.raises(PreconditionFailed, match="257 routing keys, more than 256"):
        channel.publish(b"", "amq.direct", "here", properties)


def test_sinks_beyond_the_limit_work_on(channel: Channel) -> None:
    assert SINKS > SINKS_PER_VHOST_MAX
    for number in (0, SINKS - 1):
        commit(channel, f"s{number}", 2, [])
    with pytest.raises(Returned, match="has at most 4000 sinks"):
        channel.publish(
            json.dumps({"sink": "new", "batch": 1, "queues": []}).encode(),
            "",
            "amq.leveret.commit",
            mandatory=True,
        )
