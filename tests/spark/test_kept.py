"""Checkpoints that older builds made go on where they were, on the data directory of their time.

The last batch of the query `copy` was committed at the broker and not noted by Spark: it is planned
again as it was, and dropped.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from kept.filling import body, uri_of
from kept.opening import IDS, KEPT, unpack
from kept.querying import COPY, ONE, SALES, SELL, TWO, run_query
from kept.reading import take
from leveret.client.blocking import Channel, connect
from leveret.spark.columns.schema import ROW
from leveret.spark.offsets import from_json
from leveret.spark.options.read import parse_options
from leveret.spark.transports import open_transport
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker


@pytest.mark.parametrize(("name", "end"), KEPT, ids=IDS)
def test_a_query_goes_on(spark: SparkSession, tmp_path: Path, name: str, end: str) -> None:
    need_own_broker()
    kept = unpack(name, end, tmp_path)
    with kept.broker() as broker:
        run_query(spark, broker, COPY, kept.checkpoints)
        run_query(spark, broker, SELL, kept.checkpoints)
        broker.restart()
        # What is read again must not be there again, and what is new must come.
        run_query(spark, broker, COPY, kept.checkpoints)
        with connect(uri_of(broker, "/")) as connection:
            channel = connection.channel()
            for queue, count in (("copied", ONE[-1] + TWO[-1]), ("sold", SALES[-1])):
                assert channel.queue_declare(queue, passive=True).message_count == count
            copied = bodies(channel, "copied", ONE[-1] + TWO[-1], is_stream=True)
            sold = bodies(channel, "sold", SALES[-1])
        # The checkpoints have adopted the ids that the streams got at the first start.
        for query, streams in ((COPY, ("in.one", "in.two")), (SELL, ("sales-0", "sales-1"))):
            ids = stored_ids(kept.checkpoints / query)
            assert all(ids[stream] == stream_id(broker, stream) for stream in streams)
    for stream, ends in (("in.one", ONE), ("in.two", TWO)):
        of_stream = [each for each in copied if each.startswith(f"<{stream}.".encode())]
        assert of_stream == [body(stream, number) for number in range(ends[-1])]
    assert sorted(sold) == sorted(body("sales", number) for number in range(SALES[-1]))


def stored_ids(checkpoint: Path) -> dict[str, str]:
    """Return the ids in the newest offsets of a checkpoint."""
    log = checkpoint / "offsets"
    newest = max((path for path in log.glob("[0-9]*")), key=lambda path: int(path.name))
    return from_json(json.loads(newest.read_text().splitlines()[-1])).ids


def stream_id(broker: BrokerProcess, stream: str) -> str | None:
    """Return the id of a stream."""
    options = parse_options({"uri": uri_of(broker, "/"), "stream": stream})
    with open_transport(options, stream, ROW) as way:
        return way.tail().stream_id


def bodies(channel: Channel, queue: str, count: int, *, is_stream: bool = False) -> list[bytes]:
    """Return the bodies of so many messages."""
    return [message.body for message in take(channel, queue, count, is_stream=is_stream)]
