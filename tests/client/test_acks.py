"""Acks that are written together: which join, which do not, and what order they keep."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.client.acks import CLIENT_EARLY_ACKS_MAX, Acks
from leveret.client.message import Message
from leveret.client.session.channel import ChannelSession
from leveret.wire.method import Method
from leveret.wire.methods import (
    BasicAck,
    BasicConsume,
    BasicDeliver,
    BasicNack,
    BasicPublish,
    BasicQos,
    BasicRecover,
    BasicReject,
    ChannelClose,
    TxSelect,
)
from support.wire.client_peer import Application, Peer, Waiter, content


class Acking(Application):
    """An application whose acks go through its session, as a shell's channel passes them on."""

    session: ChannelSession

    def ack(self, delivery_tag: int = 0, *, multiple: bool = False) -> None:
        """Ack."""
        super().ack(delivery_tag, multiple=multiple)
        self.session.ack(delivery_tag, multiple)


def consuming(peer: Peer, count: int) -> tuple[ChannelSession, list[Message]]:
    """Return a channel and messages that were delivered on it."""
    application = Acking()
    peer.application = application
    channel = application.session = peer.channel()
    data = [content(1, BasicDeliver("c", tag, False, "", "q"), b"x") for tag in range(1, count + 1)]
    messages = [event for event in peer.feed(*data) if isinstance(event, Message)]
    assert [message.delivery_tag for message in messages] == list(range(1, count + 1))
    return channel, messages


def sent(peer: Peer) -> list[Method | bytes]:
    """Return what was sent since the last call."""
    return [part for _, part in peer.sent()]


def test_acks_in_order_are_one(peer: Peer) -> None:
    _, messages = consuming(peer, 5)
    for message in messages[:4]:
        message.ack()
    assert peer.session.output_bytes > 0
    assert sent(peer) == [BasicAck(4, multiple=True)]
    assert peer.session.output_bytes == 0
    messages[4].ack()
    assert sent(peer) == [BasicAck(5)]


def test_the_application_is_asked_once_for_acks_that_join(peer: Peer) -> None:
    """And for the newest delivery's, which may be the last for a long time."""
    _, messages = consuming(peer, 5)
    for message in messages:
        message.ack()
    application = messages[0].owner
    assert isinstance(application, Acking)
    assert [tag for _, tag, _ in application.acks] == [1, 5]
    assert sent(peer) == [BasicAck(5, multiple=True)]


def test_an_ack_out_of_order_is_written_alone(peer: Peer) -> None:
    _, messages = consuming(peer, 6)
    for place in (0, 2, 3, 1, 4):
        messages[place].ack()
    assert sent(peer) == [BasicAck(1), BasicAck(3), BasicAck(4), BasicAck(5, multiple=True)]


def test_the_tag_of_joined_acks_is_one_that_the_broker_holds(peer: Peer) -> None:
    """RabbitMQ refuses an ack of a tag that was acked before, also with `multiple`."""
    _, messages = consuming(peer, 4)
    messages[2].ack()
    messages[0].ack()
    messages[1].ack()
    assert sent(peer) == [BasicAck(3), BasicAck(2, multiple=True)]
    messages[3].ack()
    assert sent(peer) == [BasicAck(4)]


def test_refused_deliveries_are_no_gap(peer: Peer) -> None:
    channel, messages = consuming(peer, 8)
    messages[0].ack()
    channel.nack(2, False, True)
    messages[2].ack()
    channel.reject(4, False)
    messages[4].ack()
    messages[5].ack()
    assert sent(peer) == [
        BasicAck(1),
        BasicNack(2, False, True),
        BasicAck(3),
        BasicReject(4, False),
        BasicAck(6, multiple=True),
    ]


@pytest.mark.parametrize("tag", [3, 0])
def test_what_was_acked_at_once_is_no_gap(peer: Peer, tag: int) -> None:
    channel, messages = consuming(peer, 3)
    channel.ack(tag, True)
    later = peer.feed(*[content(1, BasicDeliver("c", n, False, "", "q"), b"x") for n in (4, 5, 6)])
    for message in later[:2]:
        assert isinstance(message, Message)
        message.ack()
    assert sent(peer) == [BasicAck(tag, multiple=True), BasicAck(5, multiple=True)]
    messages[0].ack()
    assert sent(peer) == [BasicAck(1)], "the broker says that it does not know it"


def test_a_delivery_that_did_not_come_is_acked_alone(peer: Peer) -> None:
    channel, _ = consuming(peer, 1)
    channel.ack(1, False)
    channel.ack(2, False)
    assert sent(peer) == [BasicAck(1), BasicAck(2)]


def test_acks_come_before_what_was_done_after_them(peer: Peer) -> None:
    channel, messages = consuming(peer, 5)
    messages[0].ack()
    messages[1].ack()
    channel.publish(b"", "", "q")
    messages[2].ack()
    channel.request(BasicQos(prefetch_count=1), Waiter())
    messages[3].ack()
    channel.close()
    methods = [part for part in sent(peer) if isinstance(part, Method)]
    assert [type(method) for method in methods] == [
        *(BasicAck, BasicPublish, BasicAck, BasicQos, BasicAck, ChannelClose)
    ]
    assert methods[0] == BasicAck(2, multiple=True)


def test_a_channel_that_has_ended_acks_nothing_more(peer: Peer) -> None:
    _, messages = consuming(peer, 3)
    messages[0].ack()
    sent(peer)
    messages[1].ack()
    peer.session.lost("the wire was cut")
    assert sent(peer) == []


@pytest.mark.parametrize("method", [TxSelect(), BasicRecover(True), BasicConsume("q", no_ack=True)])
def test_where_it_is_not_known_what_is_unacked_each_ack_is_written(
    peer: Peer, method: Method
) -> None:
    """A rollback takes acks back; other deliveries get no acks; others get new tags."""
    channel, messages = consuming(peer, 4)
    messages[0].ack()
    channel.request(method, Waiter())
    messages[1].ack()
    messages[2].ack()
    assert sent(peer) == [BasicAck(1), method, BasicAck(2), BasicAck(3)]


@pytest.mark.parametrize("beyond", [False, True])
def test_early_acks_are_noted_up_to_a_limit(beyond: bool) -> None:
    acks = Acks(1, 0)
    acks.gather(True)
    acks.newest = 3 * CLIENT_EARLY_ACKS_MAX
    for tag in range(2, CLIENT_EARLY_ACKS_MAX + 2 + beyond):
        acks.settle(tag, False)
    assert acks.takes(1) is not beyond
    assert acks.takes(CLIENT_EARLY_ACKS_MAX + 2) is not beyond


@given(st.data())
def test_the_broker_hears_of_every_ack_once_and_of_no_other(data: st.DataObject) -> None:
    """Any order, with deliveries in between; the other side counts as a broker does."""
    peer = Peer(False).open()
    application = Acking()
    peer.application = application
    application.session = peer.channel()
    unacked: set[int] = set()
    waiting: dict[int, Message] = {}
    acked: set[int] = set()
    newest = 0
    for _ in range(data.draw(st.integers(1, 60))):
        step = data.draw(st.sampled_from(["deliver", "ack", "ack", "nack", "send"]))
        if step == "deliver" or (step in {"ack", "nack"} and not waiting):
            newest += 1
            [message] = peer.feed(content(1, BasicDeliver("c", newest, False, "", "q"), b"x"))
            assert isinstance(message, Message)
            waiting[newest] = message
            unacked.add(newest)
        elif step == "ack":
            places = [0, 0, 0, len(waiting) // 2, len(waiting) - 1]
            tag = sorted(waiting)[data.draw(st.sampled_from(places))]
            waiting.pop(tag).ack()
            acked.add(tag)
        elif step == "nack":
            tag = min(waiting)
            del waiting[tag]
            application.session.nack(tag, False, True)
            acked.add(tag)
        else:
            judge(peer, unacked, acked)
            assert unacked == set(waiting)
    judge(peer, unacked, acked)
    assert unacked == set(waiting)


def judge(peer: Peer, unacked: set[int], acked: set[int]) -> None:
    """Take what was sent as a broker takes it."""
    for method in sent(peer):
        assert isinstance(method, (BasicAck, BasicNack))
        assert method.delivery_tag in unacked, "406: unknown delivery tag"
        settled = {method.delivery_tag}
        if method.multiple:
            settled = {tag for tag in unacked if tag <= method.delivery_tag}
        assert settled <= acked
        unacked -= settled


def test_a_batch_is_of_one_consumer(peer: Peer) -> None:
    peer.channel()
    data = [
        content(1, BasicDeliver(consumer, tag, tag == 2, exchange, key), b"%d" % tag)
        for tag, (consumer, exchange, key) in enumerate(
            [("c", "", "q"), ("c", "e", "q"), ("d", "e", "k"), ("d", "e", "k"), ("c", "", "q")], 1
        )
    ]
    found = [
        (one.consumer_tag, one.delivery_tag, one.redelivered, one.exchange, one.routing_key)
        for one in peer.feed(*data)
        if isinstance(one, Message)
    ]
    assert found == [
        ("c", 1, False, "", "q"),
        ("c", 2, True, "e", "q"),
        ("d", 3, False, "e", "k"),
        ("d", 4, False, "e", "k"),
        ("c", 5, False, "", "q"),
    ]
