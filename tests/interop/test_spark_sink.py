"""Spark's sink on Debian's RabbitMQ: at least once, and all else is refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rabbitmq import RabbitMQ, installed

pytest.importorskip("pyspark")

import pyarrow as pa

from leveret.client.blocking import Channel, connect
from leveret.spark.options.read import OptionError
from leveret.spark.write.link import WriteError
from support.spark.sink_order import sink_for
from support.spark.written_rows import HEADERS, bodies, consumed, drain, ids, numbers, texts


@pytest.fixture(scope="module")
def rabbit() -> Iterator[RabbitMQ]:
    """A node of its own."""
    if not installed():
        pytest.skip("rabbitmq-server is not installed")
    with RabbitMQ() as node:
        yield node


@pytest.fixture
def channel(rabbit: RabbitMQ) -> Iterator[Channel]:
    """A channel to look at what arrived."""
    with connect(rabbit.uri) as connection:
        yield connection.channel()


@pytest.mark.parametrize("type_", ["classic", "quorum", "stream"])
def test_rows_arrive(rabbit: RabbitMQ, channel: Channel, name: str, type_: str) -> None:
    channel.queue_declare(name, durable=True, arguments={"x-queue-type": type_})
    sink = sink_for({"uri": rabbit.uri, "queue": name}, numbers(0, 1))
    sink.save([[numbers(0, 5000), numbers(5000, 5001)]])
    sink.batch(0, [[numbers(5001, 5003)], []], query=name)
    sink.batch(0, [[numbers(5001, 5003)]], query=name)  # at least once
    found = consumed(channel, name, is_stream=type_ == "stream")
    assert found == texts(0, 5003) + texts(5001, 5003)


def test_headers_properties_and_large_bodies_arrive_as_they_are(
    rabbit: RabbitMQ, channel: Channel, name: str
) -> None:
    channel.queue_declare(name)
    large = [b"x" * size for size in (0, 131_064, 131_065, 3_000_000)]
    rows = pa.RecordBatch.from_pydict(
        {
            "body": pa.array(large),
            "headers": pa.array([[("h", "größe"), ("n", None)], None, [], None], HEADERS),
            "properties": pa.array(
                [{"type": "t", "priority": 3}, None, None, {"type": None, "priority": 0}],
                pa.struct([("type", pa.string()), ("priority", pa.int32())]),
            ),
        }
    )
    sink_for({"uri": rabbit.uri, "queue": name}, rows).save([[rows]])
    arrived = drain(channel, name)
    assert [m.body for m in arrived] == large
    assert [m.properties.headers for m in arrived] == [{"h": "größe", "n": None}, None, {}, None]
    assert [m.properties.type for m in arrived] == ["t", None, None, None]
    assert [m.properties.priority for m in arrived] == [3, None, None, 0]
    assert {m.properties.delivery_mode for m in arrived} == {2}


@pytest.mark.parametrize(
    ("more", "text"),
    [
        ({"dedup": "staged"}, "staged batches: RabbitMQ does not recognise"),
        ({"dedup": "rows"}, "dedup=rows: RabbitMQ does not recognise"),
        ({"writeId": "import"}, "the option writeId: RabbitMQ does not recognise"),
    ],
)
def test_what_only_leveret_has_is_refused(
    rabbit: RabbitMQ, channel: Channel, name: str, more: dict[str, str], text: str
) -> None:
    channel.queue_declare(name)
    sink = sink_for({"uri": rabbit.uri, "queue": name} | more, numbers(0, 1))
    with pytest.raises(OptionError, match=text):
        sink.save([[numbers(0, 3)]])
    assert bodies(channel, name) == []


def test_publishing_ids_are_refused(rabbit: RabbitMQ, channel: Channel, name: str) -> None:
    channel.queue_declare(name)
    options = {"uri": rabbit.uri, "queue": name, "publisherName": "p"}
    with pytest.raises(OptionError, match="the column 'publishing_id': RabbitMQ does not"):
        sink_for(options, ids(1)).save([[ids(1)]])


def test_what_no_queue_takes_fails_or_goes_elsewhere(
    rabbit: RabbitMQ, channel: Channel, name: str
) -> None:
    channel.queue_declare(name)
    keys = pa.array([name, "none"] * 500)
    rows = numbers(0, 1000, routing_key=keys)
    options = {"uri": rabbit.uri, "exchange": ""}
    with pytest.raises(WriteError, match=r"no queue takes .* routing key 'none'"):
        sink_for(options, rows).save([[rows]])
    channel.queue_purge(name)
    channel.exchange_declare(f"{name}-lost", "fanout")
    channel.queue_declare(f"{name}-lost")
    channel.queue_bind(f"{name}-lost", f"{name}-lost")
    sink_for(options | {"unroutable": f"dead-letter:{name}-lost"}, rows).save([[rows]])
    assert bodies(channel, name) == texts(0, 1000)[0::2]
    assert bodies(channel, f"{name}-lost") == texts(0, 1000)[1::2]


def test_what_a_full_queue_refuses_fails_the_write(
    rabbit: RabbitMQ, channel: Channel, name: str
) -> None:
    full = {"x-max-length": 2, "x-overflow": "reject-publish"}
    channel.queue_declare(name, arguments=full)
    with pytest.raises(WriteError, match="reject-publish"):
        sink_for({"uri": rabbit.uri, "queue": name}, numbers(0, 1)).save([[numbers(0, 10)]])
