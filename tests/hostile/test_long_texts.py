"""A text of an argument may be longer than what it becomes: nothing that comes of it is a fault.

A routing key has 255 bytes at most; the argument that says the key of dead letters can have any
number.  What goes wrong while a message dies is no client's fault at hand and stops the broker, and
does so again at each start: the message is still there.
"""

from __future__ import annotations

from typing import Final

import pytest

from leveret.broker.attributes.arguments import KNOWN, QUEUE_NUMBERS
from leveret.errors import in_plain_words
from support.node.core import Node
from support.node.staged import killed
from support.wire.raw_codec import method, publish

SIZES: Final = [255, 256, 65_536]

TEXTS: Final = sorted({*KNOWN} - {*QUEUE_NUMBERS})

DLX, DLK = "x-dead-letter-exchange", "x-dead-letter-routing-key"


def _node() -> Node:
    """A broker in which all that comes to `amq.fanout` comes to `letters`."""
    node = Node()
    node.add_user("mine", configure="^mine-", write=".*", read="^mine-")
    guest = node.connect()
    guest.declare("letters")
    guest.call(1, "queue.bind", queue="letters", exchange="amq.fanout", routing_key="")
    return node


def _live(node: Node) -> None:
    """Let messages come, be taken, die and be handed on."""
    peer = node.connect_as("mine")
    peer.send(
        publish(1, "", "mine-q", b"x", delivery_mode=2, headers={"x-k" * 60: "v" * 300}),
        publish(1, "", "mine-q", b"y", delivery_mode=2, expiration="0"),
        method(1, "basic.get", queue="mine-q"),
        method(1, "basic.reject", delivery_tag=1, requeue=False),
    )
    node.sync()
    node.tick(1000)
    node.sync()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", TEXTS)
def test_no_text_of_a_queues_arguments_is_too_long_for_what_it_becomes(
    name: str, size: int
) -> None:
    node = _node()
    peer = node.connect_as("mine")
    arguments = {DLX: "amq.fanout"} | {name: "k" * size}
    peer.send(method(1, "queue.declare", queue="mine-q", durable=True, arguments=arguments))
    node.sync()
    (answer,) = peer.take()
    if answer.name == "channel.close":
        assert answer.code == 406
        return
    _live(node)
    _live(killed(node))


@pytest.mark.parametrize("size", SIZES)
def test_the_key_of_dead_letters_is_a_routing_key(size: int) -> None:
    node = _node()
    peer = node.connect_as("mine")
    arguments = {DLX: "amq.fanout", DLK: "é" * (size // 2) + "k" * (size % 2)}
    peer.send(method(1, "queue.declare", queue="mine-q", durable=True, arguments=arguments))
    node.sync()
    assert peer.names() == ["queue.declare-ok" if size <= 255 else "channel.close"]


def test_one_that_an_earlier_release_took_stops_nothing() -> None:
    node = _node()
    guest = node.connect()
    guest.declare("mine-q", arguments={DLX: "amq.fanout", DLK: "k"})
    record = node.classic("mine-q").definition("/")
    record["arguments"] = {DLX: "amq.fanout", DLK: "é" * 40_000}
    node.journal.define("queue", record)
    node.sync()
    node = killed(node)
    _live(node)
    got = node.connect().call_get("letters")
    assert got.fields["routing_key"] == "é" * 127


def test_terms_are_not_looked_for_in_what_a_client_quotes_at_length() -> None:
    """It took seconds in which nobody was served: each beginning was looked for an end of."""
    term = '{leftover_string,"x"}'
    assert in_plain_words(term) != term
    assert in_plain_words(term * 1000) == term * 1000
    node = _node()
    peer = node.connect_as("mine")
    arguments = {"x-queue-type": term[:-2] * 5000}
    peer.send(method(1, "queue.declare", queue="mine-q", durable=True, arguments=arguments))
    assert peer.expect(1, "channel.close").code == 406
    assert all("only digits are allowed" not in line for _, line in peer.connection.log)
