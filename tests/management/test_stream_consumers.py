"""The named consumers of a stream over the HTTP API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leveret.client.blocking import Channel, Connection
from support.http.http_api import Api

PATH = "/api/streams/%2F/followed/consumers"
BAD_REQUEST, NOT_FOUND = 400, 404


@pytest.fixture
def stream(channel: Channel) -> Iterator[str]:
    """A stream with ten messages."""
    channel.queue_declare("followed", durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_select()
    for number in range(10):
        channel.publish(b"%d" % number, routing_key="followed")
    yield "followed"
    channel.queue_delete("followed")


def read(channel: Channel, name: str, count: int) -> list[bytes]:
    """Read and ack so many messages under a name."""
    channel.qos(prefetch_count=5)
    arguments: dict[str, object] = {"x-stream-consumer": name, "x-stream-offset": "first"}
    got: list[bytes] = []
    with channel.consume("followed", arguments=arguments) as messages:
        for message in messages:
            message.ack()
            got.append(message.body)
            if len(got) == count:
                break
    return got


def test_names_are_listed_with_what_they_have_done(
    api: Api, stream: str, connection: Connection
) -> None:
    assert api.ask("GET", PATH) == (200, [])
    channel = connection.channel()
    assert len(read(channel, "b/1", 4)) == 4
    expected: dict[str, Any] = {
        "name": "b/1", "owner": "guest", "owner_deleted": False, "offset": 4, "lag": 6,
        "consumers": 0, "messages_unacknowledged": 0, "active": None,
    }  # fmt: skip
    assert api.ask("GET", PATH) == (200, [expected])
    assert api.ask("GET", f"{PATH}/b%2F1") == (200, expected)
    arguments: dict[str, object] = {"x-stream-consumer": "a"}
    with channel.consume(stream, arguments=arguments) as reader:
        _, found = api.ask("GET", PATH)
        assert isinstance(found, list)
        assert [(one["name"], one["offset"]) for one in found] == [("a", 10), ("b/1", 4)]
        assert found[0]["consumers"] == 1
        assert found[0]["active"]["consumer_tag"] == reader.consumer_tag
        assert api.ask("PUT", f"{PATH}/a", {"offset": 0})[0] == BAD_REQUEST
        assert api.ask("DELETE", f"{PATH}/a")[0] == BAD_REQUEST
    assert api.change("DELETE", f"{PATH}/a") == 204
    assert api.ask("GET", f"{PATH}/a")[0] == NOT_FOUND


def test_a_name_is_moved(api: Api, stream: str, connection: Connection) -> None:
    channel = connection.channel()
    assert api.change("PUT", f"{PATH}/mover", {"offset": 7}) == 201
    assert read(channel, "mover", 1) == [b"7"]
    for wanted, offset in (("first", 0), ("last", 9), ("next", 10), (-3, 7), (10, 10)):
        assert api.change("PUT", f"{PATH}/mover", {"offset": wanted}) == 204
        _, found = api.ask("GET", f"{PATH}/mover")
        assert isinstance(found, dict)
        assert found["offset"] == offset
    assert api.change("PUT", f"{PATH}/mover", {"offset": 3}) == 204
    assert read(channel, "mover", 2) == [b"3", b"4"]


@pytest.mark.parametrize("wanted", ["5", "1h", True, None, 1.5, [], 2**70, -(2**70)])
def test_what_is_no_offset_is_refused(api: Api, stream: str, wanted: object) -> None:
    status, answer = api.ask("PUT", f"{PATH}/x", {"offset": wanted})
    assert status == BAD_REQUEST
    assert isinstance(answer, dict)
    assert "'offset'" in answer["reason"]
    assert api.ask("GET", PATH) == (200, [])


def test_an_offset_ahead_of_the_stream_is_refused(api: Api, stream: str) -> None:
    """A restart could not tell it from one of messages that damage took, and takes it back."""
    status, answer = api.ask("PUT", f"{PATH}/x", {"offset": 11})
    assert status == BAD_REQUEST
    assert isinstance(answer, dict)
    assert "is ahead of stream" in answer["reason"]
    assert api.ask("GET", PATH) == (200, [])


def test_what_is_not_there(api: Api, stream: str, channel: Channel) -> None:
    channel.queue_declare("classic-one")
    for path in (
        "/api/streams/none/followed/consumers",
        "/api/streams/%2F/none/consumers",
        f"{PATH}/nobody",
    ):
        assert api.ask("GET", path)[0] == NOT_FOUND
    status, answer = api.ask("GET", "/api/streams/%2F/classic-one/consumers")
    assert status == BAD_REQUEST
    assert "is not a stream" in str(answer)
    assert api.ask("DELETE", f"{PATH}/nobody")[0] == NOT_FOUND
    channel.queue_delete("classic-one")
