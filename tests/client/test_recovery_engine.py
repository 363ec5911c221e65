"""Recovery without a socket: delays, numbers, what is remembered, tags and confirms."""

from __future__ import annotations

import pytest

from leveret.client import BasicProperties, DeliveryLost, Message, Nacked, Recovery
from leveret.client.events import Settled
from leveret.client.message import delivered
from leveret.client.numbering import PUBLISHER_PREFIX, Numbering
from leveret.client.recovery.backoff import Backoff
from leveret.client.recovery.recoverer import Recoverer
from leveret.client.session.topology import DeclaredTopology
from leveret.client.uri import Parameters
from leveret.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicConsumeOk,
    BasicDeliver,
    BasicNack,
    BasicPublish,
    ChannelCloseOk,
    ChannelOpenOk,
    ConfirmSelect,
    ConfirmSelectOk,
    ExchangeDeclare,
    ExchangeDeclareOk,
    QueueBind,
    QueueBindOk,
    QueueDeclare,
    QueueDeclareOk,
    QueueDelete,
    QueueDeleteOk,
)
from leveret.wire.properties import decode_properties
from support.wire.client_peer import Application, Waiter, content, frame
from support.wire.client_twice import Twice

# -- delays ----------------------------------------------------------------------------------------


def test_delays_double_up_to_their_limit_with_jitter() -> None:
    settings = Recovery(
        delay_seconds=1.0, delay_seconds_max=5.0, random=iter([0, 1, 0.5, 0]).__next__
    )
    backoff = Backoff(settings, 0, None, None)
    assert [backoff.next_ms(0) for _ in range(4)] == [500, 2000, 3000, 2500]


def test_attempts_and_seconds_are_limited() -> None:
    settings = Recovery(delay_seconds=1.0, delay_seconds_max=1.0, random=lambda: 1.0)
    few = Backoff(settings, 0, 2, None)
    assert [few.next_ms(0) for _ in range(3)] == [1000, 1000, None]
    short = Backoff(settings, 0, None, 3.0)
    assert [short.next_ms(now_ms) for now_ms in (0, 2000, 2001)] == [1000, 1000, None]


@pytest.mark.parametrize(
    ("lived_ms", "next_delay_ms"), [(400, 800), (401, 100)], ids=["short", "long enough"]
)
def test_a_connection_that_lives_shorter_than_its_delay_is_no_success(
    lived_ms: int, next_delay_ms: int
) -> None:
    """A broker that accepts and drops at once is asked less and less often."""
    recoverer = Recoverer(Recovery(random=lambda: 1.0), [Parameters()], {}, "me")
    error = ConnectionError()
    recoverer.lost(error, 0)
    assert [recoverer.next_ms(error, 0) for _ in range(3)] == [100, 200, 400]
    recoverer.recovered(1000)
    recoverer.lost(error, 1000 + lived_ms)
    assert recoverer.next_ms(error, 1000 + lived_ms) == next_delay_ms


@pytest.mark.parametrize(
    "wrong",
    [{"reconnect_attempts_max": -1}, {"delay_seconds": -0.1}, {"delay_seconds": float("nan")}],
)
def test_wrong_limits_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="0 or more"):
        Recovery(**wrong)  # type: ignore[arg-type]


# -- numbers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "properties",
    [
        BasicProperties(),
        BasicProperties(content_type="text/plain", delivery_mode=2),
        BasicProperties(headers={"a": 1, "b": "ä"}, app_id="me", content_encoding="utf-8"),
        BasicProperties(headers={}),
    ],
)
def test_a_number_is_added_to_the_headers(properties: BasicProperties) -> None:
    numbering = Numbering(f"{PUBLISHER_PREFIX}me")
    for number in (1, 2**40):
        found = decode_properties(numbering.numbered(properties.encode(), number))
        headers = found.headers or {}
        assert headers.pop("x-publisher") == f"{PUBLISHER_PREFIX}me"
        assert headers.pop("x-publishing-id") == number
        assert headers == (properties.headers or {})
        for name in ("content_type", "content_encoding", "delivery_mode", "app_id"):
            assert getattr(found, name) == getattr(properties, name)


def test_a_number_of_the_application_stays() -> None:
    headers: dict[str, object] = {"x-publisher": "mine", "x-publishing-id": 7}
    raw = BasicProperties(headers=headers).encode()
    assert Numbering(f"{PUBLISHER_PREFIX}me").numbered(raw, 1) == raw


def test_a_number_of_a_client_is_overwritten() -> None:
    """A message that is published again as it came, with all its headers, is another message."""
    headers: dict[str, object] = {"a": 1}
    raw = Numbering(f"{PUBLISHER_PREFIX}other").numbered(
        BasicProperties(headers=headers).encode(), 7
    )
    found = decode_properties(Numbering(f"{PUBLISHER_PREFIX}me").numbered(raw, 1)).headers
    mine = {"x-publisher": f"{PUBLISHER_PREFIX}me", "x-publishing-id": 1}
    assert found == headers | mine


def test_a_received_message_does_not_show_the_number_of_the_client() -> None:
    """Published again with its properties, it must not look like a repeat."""
    numbering = Numbering(f"{PUBLISHER_PREFIX}me")
    for properties in (BasicProperties(priority=1), BasicProperties(headers={"a": 1})):
        raw = numbering.numbered(properties.encode(), 1)
        message = delivered(Application(), BasicDeliver("c", 1, False, "", "q"), raw, b"")
        assert message.properties == properties
    headers: dict[str, object] = {"x-publisher": "mine", "x-publishing-id": 7}
    raw = BasicProperties(headers=headers).encode()
    message = delivered(Application(), BasicDeliver("c", 1, False, "", "q"), raw, b"")
    assert message.headers == headers


# -- topology --------------------------------------------------------------------------------------


def test_what_is_deleted_is_forgotten_with_its_bindings() -> None:
    topology = DeclaredTopology()
    topology.answered(ExchangeDeclare("x", "fanout", auto_delete=True), ExchangeDeclareOk())
    topology.answered(ExchangeDeclare("y", "fanout", passive=True), ExchangeDeclareOk())
    topology.answered(QueueDeclare(""), QueueDeclareOk("amq.gen-1"))
    topology.answered(QueueDeclare("q"), QueueDeclareOk("q"))
    topology.answered(QueueBind("q", "x", "k"), QueueBindOk())
    topology.answered(QueueBind("amq.gen-1", "x", "k"), QueueBindOk())
    assert [method.exchange for method in topology.exchanges()] == ["x"]
    topology.renamed("amq.gen-1", "amq.gen-2")
    assert [m.queue for m in topology.bindings() if isinstance(m, QueueBind)] == ["q", "amq.gen-2"]
    topology.answered(QueueDelete("q"), QueueDeleteOk())
    assert [name for name, _ in topology.queues()] == ["amq.gen-1"]
    assert len(topology.exchanges()) == 1
    topology.answered(QueueDelete("amq.gen-1"), QueueDeleteOk())
    assert topology.bindings() == []
    assert topology.exchanges() == [], "the broker deleted it with its last binding"


# -- one connection after another ------------------------------------------------------------------


def test_publishes_are_sent_again_and_confirmed_under_their_sequences(bytewise: bool) -> None:
    one = Twice(bytewise)
    one.ask(ConfirmSelect(), ConfirmSelectOk())
    waiter = Waiter()
    for number in range(1, 5):
        assert one.channel.publish(b"%d" % number, "", "q", token=waiter) == number
    one.feed(1, BasicAck(2))
    one.lose()
    one.channel.publish(b"5", "", "q", token=waiter)  # waits for the connection
    one.feed(1, ChannelOpenOk())
    assert [method for _, method in one.peer.sent()][1:] == [ConfirmSelect()]
    one.feed(1, ConfirmSelectOk())
    assert one.outcomes == [None]
    bodies = [part for _, part in one.peer.sent() if isinstance(part, bytes) and len(part) == 1]
    assert bodies == [b"1", b"3", b"4", b"5"]
    now = one.peer.session.channels[1]
    assert now.publish(b"6", "", "q", token=waiter) == 6
    events = one.feed(1, BasicNack(2), BasicAck(5, multiple=True))
    settled = [outcome for e in events if isinstance(e, Settled) for outcome in e.outcomes]
    assert [type(failure) for _, failure in settled] == [Nacked, *[type(None)] * 4]
    refused = settled[0][1]
    assert isinstance(refused, Nacked)
    assert refused.sequences == (3,)
    assert now.confirms is not None
    assert now.confirms.unconfirmed == 0


def test_publishes_of_several_channels_are_sent_again_in_their_order(bytewise: bool) -> None:
    """Also those that were written and not sent, and those that were sent again before."""
    one = Twice(bytewise)
    one.ask(ConfirmSelect(), ConfirmSelectOk())
    one.channel.publish(b"1", "", "q")
    other = one.peer.session.open_channel(one.peer.application, Waiter())
    one.peer.feed(frame(2, ChannelOpenOk()))
    other.publish(b"plain", "", "q")  # before confirm.select: not sent again
    other.request(ConfirmSelect(), Waiter())
    one.feed(2, ConfirmSelectOk())
    other.publish(b"2" * 200_000, "", "q", mandatory=True, token=Waiter())
    one.channel.publish(b"3", "", "q")
    one.peer.sent()
    other.publish(b"4", "", "q")
    one.feed(1, BasicAck(2))
    for _ in range(2):
        one.lose()
        one.feed(1, ChannelOpenOk())
        one.feed(2, ChannelOpenOk())
        one.peer.sent()
        one.feed(1, ConfirmSelectOk())
        one.feed(2, ConfirmSelectOk())
        parts = [part for _, part in one.peer.sent()]
        assert sum(isinstance(part, BasicPublish) for part in parts) == 3
        bodies = [part for part in parts if isinstance(part, bytes) and part.strip(b"1234") == b""]
        assert b"".join(bodies) == b"1" + b"2" * 200_000 + b"4"
    kept = one.recoverer.memory.kept
    assert kept.size > 200_000
    one.feed(1, BasicAck(1))
    one.feed(2, BasicAck(2, multiple=True))
    assert kept.size == 0


def test_what_is_kept_goes_with_its_confirms(bytewise: bool) -> None:
    """In whatever order they come: one that stays away keeps no more than its own piece."""
    one = Twice(bytewise)
    one.ask(ConfirmSelect(), ConfirmSelectOk())
    kept = one.recoverer.memory.kept
    for _ in range(3):
        for _ in range(2):
            one.channel.publish(b"x" * 100, "", "q")
        one.peer.sent()
    whole = kept.size
    assert whole > 600
    one.feed(1, BasicAck(4), BasicAck(3))
    assert kept.size == whole * 2 // 3
    one.feed(1, BasicAck(6), BasicAck(2), BasicAck(5))
    assert kept.size == whole // 3
    one.feed(1, BasicAck(1))
    assert kept.size == 0


def test_tags_carry_the_generation_of_their_connection(bytewise: bool) -> None:
    one = Twice(bytewise)
    one.ask(BasicConsume("q"), BasicConsumeOk("mine"))
    one.peer.feed(content(1, BasicDeliver("mine", 1, False, "", "q"), b"x"))
    one.lose()
    one.feed(1, ChannelOpenOk())
    consume = one.peer.sent()[-1][1]
    assert isinstance(consume, BasicConsume)
    assert (consume.queue, consume.consumer_tag) == ("q", "mine")
    one.feed(1, BasicConsumeOk("mine"))
    [message] = one.peer.feed(content(1, BasicDeliver("mine", 1, True, "", "q"), b"x"))
    assert isinstance(message, Message)
    now = one.peer.session.channels[1]
    with pytest.raises(DeliveryLost):
        now.ack(1, False)
    with pytest.raises(DeliveryLost):
        now.ack(0, True)
    assert one.peer.sent() == []
    now.ack(message.delivery_tag, False)
    assert one.peer.sent() == [(1, BasicAck(1))]
    now.ack(0, True)
    assert one.peer.sent() == [(1, BasicAck(0, multiple=True))]


def test_declarations_come_first_and_on_a_channel_of_their_own(bytewise: bool) -> None:
    one = Twice(bytewise)
    one.ask(QueueDeclare("", exclusive=True), QueueDeclareOk("amq.gen-1"))
    one.ask(QueueBind("", "amq.fanout"), QueueBindOk())
    one.lose()
    one.feed(1, ChannelOpenOk())
    assert one.peer.sent()[-1] == (1, QueueDeclare("", exclusive=True))
    one.feed(1, QueueDeclareOk("amq.gen-2"))
    assert one.peer.sent() == [(1, QueueBind("amq.gen-2", "amq.fanout"))]
    one.feed(1, QueueBindOk())
    one.peer.sent()
    for event in one.feed(1, ChannelCloseOk()):
        event.channel.owner.ended(event)  # type: ignore[attr-defined]
    one.feed(1, ChannelOpenOk())
    assert one.outcomes == [None]
    now = one.peer.session.channels[1]
    one.peer.sent()
    now.publish(b"x", "", "amq.gen-1")
    assert one.peer.sent()[0][1] == BasicPublish("", "amq.gen-2")


def test_every_answer_gives_an_attempt_its_time_once_more(bytewise: bool) -> None:
    one = Twice(bytewise)
    for number in range(5):
        one.ask(QueueDeclare(f"q{number}"), QueueDeclareOk(f"q{number}"))
    one.lose()
    one.feed(1, ChannelOpenOk())
    assert one.answers == 1
    for number in range(5):
        one.feed(1, QueueDeclareOk(f"q{number}"))
        assert one.answers == 2 + number
    one.recoverer.abandon()
    one.feed(1, ChannelCloseOk())
    assert one.answers == 6
