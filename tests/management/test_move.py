"""Moving messages from one queue to another over HTTP, and dead letters back to where they died."""

from __future__ import annotations

from leveret.client.blocking import Channel
from leveret.wire.properties import BasicProperties
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api


def bodies(channel: Channel, queue: str) -> list[bytes]:
    """Take all messages of a queue."""
    found = []
    while (message := channel.get(queue, no_ack=True)) is not None:
        found.append(bytes(message.body))
    return found


def test_messages_move_in_their_order(api: Api, channel: Channel) -> None:
    channel.queue_declare("move.from", durable=True)
    channel.queue_declare("move.to", durable=True)
    channel.confirm_select()
    for number in range(5):
        channel.publish(b"%d" % number, routing_key="move.from")
    path = "/api/queues/%2F/move.from/move"
    asked = {"to": "move.to", "count": 3}
    assert api.ask("POST", path, asked) == (200, {"messages": 3, "left": True})
    assert api.ask("POST", path, {"to": "move.to"}) == (200, {"messages": 2, "left": False})
    assert bodies(channel, "move.from") == []
    assert bodies(channel, "move.to") == [b"0", b"1", b"2", b"3", b"4"]
    channel.queue_delete("move.from")
    channel.queue_delete("move.to")


def test_dead_letters_of_a_reason_go_back(api: Api, channel: Channel) -> None:
    channel.queue_declare("move.dead", durable=True)
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "move.dead"}
    channel.queue_declare("move.work", durable=True, arguments={**dead, "x-max-length": 2})
    channel.confirm_select()
    for number in range(4):
        channel.publish(b"%d" % number, routing_key="move.work")
    rejected = channel.get("move.work")
    assert rejected is not None
    channel.nack(rejected.delivery_tag, requeue=False)
    channel.queue_purge("move.work")
    path = "/api/queues/%2F/move.dead/move"
    asked = {"to": "move.work", "reason": "rejected", "queue": "move.work"}
    assert api.ask("POST", path, asked) == (200, {"messages": 1, "left": False})
    assert bodies(channel, "move.work") == [b"2"]
    assert bodies(channel, "move.dead") == [b"0", b"1"]
    channel.queue_delete("move.work")
    channel.queue_delete("move.dead")


def test_copies_are_not_made_again(api: Api, channel: Channel) -> None:
    for name in ("move.a", "move.b", "move.copy"):
        channel.queue_declare(name, durable=True)
    channel.confirm_select()
    channel.publish(
        b"once", routing_key="move.a", properties=BasicProperties(headers={"CC": ["move.copy"]})
    )
    assert bodies(channel, "move.copy") == [b"once"]
    path = "/api/queues/%2F/move.a/move"
    assert api.ask("POST", path, {"to": "move.b"}) == (200, {"messages": 1, "left": False})
    assert bodies(channel, "move.copy") == []
    assert bodies(channel, "move.b") == [b"once"]
    for name in ("move.a", "move.b", "move.copy"):
        channel.queue_delete(name)


def test_what_the_other_queue_refuses_stays(
    api: Api, channel: Channel, broker: BrokerProcess
) -> None:
    channel.queue_declare("move.part", durable=True)
    full = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare("move.full", durable=True, arguments=full)
    channel.confirm_select()
    for number in range(3):
        channel.publish(b"%d" % number, routing_key="move.part")
    path = "/api/queues/%2F/move.part/move"
    status, answer = api.ask("POST", path, {"to": "move.full"})
    assert status == 400
    assert isinstance(answer, dict)
    assert answer["reason"] == "queue 'move.full' accepts no more messages; check its limits"
    said = f"administrative change: POST {path} "
    assert "; it was answered with 400 after a part was done" in broker.expect_line(said)
    # Of the second one nothing is done, and nothing is told.
    assert api.ask("POST", path, {"to": "move.full"})[0] == 400
    api.change("DELETE", "/api/queues/%2F/move.full/contents")
    broker.expect_line("administrative change: DELETE /api/queues/%2F/move.full/contents")
    assert broker.output.count(said) == 1
    assert bodies(channel, "move.part") == [b"1", b"2"]
    channel.queue_delete("move.part")
    channel.queue_delete("move.full")


def test_a_wish_that_cannot_be_is_refused(api: Api, channel: Channel) -> None:
    channel.queue_declare("move.from", durable=True)
    channel.confirm_select()
    channel.publish(b"stays", routing_key="move.from")
    path = "/api/queues/%2F/move.from/move"
    assert api.ask("POST", path, {"to": "move.none"})[0] == 404
    for body in ({}, {"to": 5}, {"to": "move.from"}, {"to": "x", "count": 0}):
        assert api.ask("POST", path, body)[0] == 400, body
    assert api.ask("POST", path, {"to": "x", "count": 1001})[0] == 400
    assert bodies(channel, "move.from") == [b"stays"]
    channel.queue_delete("move.from")


def test_what_is_left_out_does_not_come_to_its_delivery_limit(api: Api, channel: Channel) -> None:
    channel.queue_declare("move.limited", durable=True, arguments={"x-delivery-limit": 0})
    channel.queue_declare("move.to", durable=True)
    channel.confirm_select()
    for number in range(3):
        channel.publish(b"%d" % number, routing_key="move.limited")
    path = "/api/queues/%2F/move.limited/move"
    for chosen in ({"reason": "rejected"}, {"queue": "work"}):
        answer = {"messages": 0, "left": False}
        assert api.ask("POST", path, {"to": "move.to", **chosen}) == (200, answer)
    assert api.ask("POST", path, {"to": "move.to"}) == (200, {"messages": 3, "left": False})
    assert bodies(channel, "move.to") == [b"0", b"1", b"2"]
    channel.queue_delete("move.limited")
    channel.queue_delete("move.to")
