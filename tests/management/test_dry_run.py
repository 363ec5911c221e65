"""Where a message would go, as it is told, is where a message goes; and nothing is published."""

from __future__ import annotations

from typing import Any

import pytest

from leveret.client.blocking import Channel
from leveret.limits import DRY_RUN_STEPS_MAX, ROUTING_LOOKS_MAX
from support.brokers.brokers import unique
from support.http.http_api import Api


def told(api: Api, exchange: str, key: str, headers: dict[str, Any] | None = None) -> Any:
    """Return the answer of the route."""
    body: dict[str, Any] = {"routing_key": key}
    if headers is not None:
        body["headers"] = headers
    status, answer = api.ask("POST", f"/api/exchanges/%2F/{exchange}/route", body)
    assert status == 200, answer
    return answer


def test_a_message_is_followed_from_exchange_to_exchange(api: Api, channel: Channel) -> None:
    first, second, third, queue, other = (unique(name) for name in "abcde")
    channel.exchange_declare(first, "topic", arguments={"alternate-exchange": third})
    channel.exchange_declare(second, "headers")
    channel.exchange_declare(third, "fanout")
    for name in (queue, other):
        channel.queue_declare(name)
    channel.exchange_bind(second, first, "*.red")
    # A circle, which a message leaves.
    channel.exchange_bind(first, second, "", arguments={"x-match": "all", "colour": "red"})
    channel.queue_bind(queue, second, "", arguments={"x-match": "all", "colour": "red"})
    channel.queue_bind(queue, first, "#.red")
    channel.queue_bind(other, third, "")
    assert told(api, first, "very.red", {"colour": "red"}) == {
        "exchanges": [first, second],
        "queues": [queue],
        "bindings": [
            way(first, queue, "queue"),
            way(first, second, "exchange"),
            way(second, queue, "queue"),
            way(second, first, "exchange"),
        ],
        "delayed_by": [],
        "chooses": [],
        "left": False,
    }
    found = told(api, first, "blue")
    assert (found["exchanges"], found["queues"]) == ([first, third], [other])
    assert found["bindings"][0] == {**way(first, third, "exchange"), "alternate": True}
    assert channel.queue_declare(queue, passive=True).message_count == 0
    assert channel.queue_declare(other, passive=True).message_count == 0


def way(source: str, destination: str, kind: str) -> dict[str, Any]:
    return {
        "source": source,
        "destination": destination,
        "destination_type": kind,
        "alternate": False,
    }


def test_the_default_exchange_leads_to_the_queue_of_the_key(api: Api, channel: Channel) -> None:
    queue = unique("queue")
    channel.queue_declare(queue)
    assert told(api, "amq.default", queue)["queues"] == [queue]
    assert told(api, "amq.default", unique("none"))["queues"] == []


def test_copies_are_followed(api: Api, channel: Channel) -> None:
    exchange, queue, other = (unique(name) for name in "abc")
    channel.exchange_declare(exchange, "direct")
    for name in (queue, other):
        channel.queue_declare(name)
        channel.queue_bind(name, exchange, name)
    assert told(api, exchange, queue, {"CC": [other]})["queues"] == [queue, other]
    assert told(api, "amq.default", queue, {"BCC": [other]})["queues"] == [queue, other]


def test_delays_and_choices_are_told(api: Api, channel: Channel) -> None:
    delaying, choosing, queue, other = (unique(name) for name in "abcd")
    arguments = {"x-delayed-type": "fanout"}
    channel.exchange_declare(delaying, "x-delayed-message", arguments=arguments)
    channel.exchange_declare(choosing, "x-random")
    channel.exchange_bind(choosing, delaying, "")
    for name in (queue, other):
        channel.queue_declare(name)
        channel.queue_bind(name, choosing, "")
    found = told(api, delaying, "", {"x-delay": 60_000})
    assert (found["delayed_by"], found["chooses"]) == ([delaying], [choosing])
    assert len(found["queues"]) == 1
    assert told(api, delaying, "")["delayed_by"] == []
    status, delayed = api.ask("GET", f"/api/exchanges/%2F/{delaying}/delayed")
    assert (status, delayed) == (200, [])


def test_a_way_with_very_many_steps_is_told_in_part(api: Api, channel: Channel) -> None:
    wide, behind, queue = (unique(name) for name in ("wide", "behind", "queue"))
    channel.exchange_declare(wide, "fanout")
    channel.exchange_declare(behind, "fanout")
    channel.exchange_bind(behind, wide, "")
    channel.queue_declare(queue)
    channel.queue_bind(queue, behind, "")
    names = [f"{queue}-{number}" for number in range(DRY_RUN_STEPS_MAX)]
    for name in names[1:]:
        channel.queue_declare(name, exclusive=True)
        channel.queue_bind(name, wide, "")
    found = told(api, wide, "k")
    # The step to the exchange is the last that has room.
    assert (len(found["bindings"]), len(found["queues"])) == (DRY_RUN_STEPS_MAX, len(names) - 1)
    assert (found["exchanges"], found["left"]) == ([wide, behind], True)
    channel.queue_declare(names[0], exclusive=True)
    channel.queue_bind(names[0], wide, "")
    found = told(api, wide, "k")
    assert (len(found["bindings"]), len(found["queues"])) == (DRY_RUN_STEPS_MAX, len(names))
    assert (found["exchanges"], found["left"]) == ([wide], True)


def test_what_a_message_may_not_cost_is_not_followed(api: Api, channel: Channel) -> None:
    exchange, queue = unique("wide"), unique("queue")
    channel.exchange_declare(exchange, "topic")
    channel.queue_declare(queue)
    for number in range(1000):
        # Each is a tree of its own, in which every second word is `#`.
        own = "".join("abcd"[number // 4**place % 4] for place in range(5))
        channel.queue_bind(queue, exchange, ".".join(f"#.{word}" for word in own + "abcd" * 14))
    body = {"routing_key": ".".join(["a", "b", "c", "d"] * 32)}
    status, answer = api.ask("POST", f"/api/exchanges/%2F/{exchange}/route", body)
    assert status == 400
    assert str(ROUTING_LOOKS_MAX) in str(answer)


@pytest.mark.parametrize(
    ("exchange", "body", "status"),
    [
        ("amq.topic", {}, 400),
        ("amq.topic", {"routing_key": 5}, 400),
        ("amq.topic", {"routing_key": "x", "headers": 5}, 400),
        ("amq.topic", {"routing_key": "x", "headers": {"x": 10**40}}, 400),
        ("no-such", {"routing_key": "x"}, 404),
    ],
)
def test_bad_requests_are_refused(api: Api, exchange: str, body: object, status: int) -> None:
    assert api.ask("POST", f"/api/exchanges/%2F/{exchange}/route", body)[0] == status
