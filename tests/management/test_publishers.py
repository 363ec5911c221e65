"""The numbers of publishers over the HTTP API."""

from __future__ import annotations

from leveret.client import BasicProperties
from leveret.client.blocking import Channel
from support.http.http_api import Api

NOT_FOUND = 404


def test_the_highest_number_of_each_publisher(api: Api, channel: Channel) -> None:
    channel.queue_declare("numbers", durable=True, arguments={"x-queue-type": "stream"})
    assert api.ask("GET", "/api/publishers/%2F/numbers") == (200, [])
    channel.confirm_select()
    for publisher, number in (("ann", 1), ("ann", 5), ("bob", 2**40), ("ann", 3)):
        headers: dict[str, object] = {"x-publisher": publisher, "x-publishing-id": number}
        channel.publish(b"m", routing_key="numbers", properties=BasicProperties(headers=headers))
    status, found = api.ask("GET", "/api/publishers/%2F/numbers")
    assert status == 200
    assert isinstance(found, list)
    assert [(one["publisher"], one["publishing_id"]) for one in found] == [
        ("ann", 5), ("bob", 2**40),
    ]  # fmt: skip
    assert all(one["last"] > 1_700_000_000_000 for one in found)
    _, queue = api.ask("GET", "/api/queues/%2F/numbers")
    assert isinstance(queue, dict)
    assert queue["message_stats"]["deduplicated"] == 1
    channel.queue_delete("numbers")
    assert api.ask("GET", "/api/publishers/%2F/numbers")[0] == NOT_FOUND
    assert api.ask("GET", "/api/publishers/none/numbers")[0] == NOT_FOUND
