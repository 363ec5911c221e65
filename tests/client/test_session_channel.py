"""Channels of a session: opening, requests and replies, closes from either side (section 1.5)."""

from __future__ import annotations

import pytest

from leveret.client.errors import Closed, NoFreeChannel
from leveret.client.events import Cancelled, ChannelEnded, ConnectionEnded, FlowChanged, Replied
from leveret.client.session.states import ChannelState, ConnectionState
from leveret.client.uri import Parameters
from leveret.errors import NotFound, PreconditionFailed
from leveret.wire.method import Method
from leveret.wire.methods import (
    BasicCancel,
    BasicConsumeOk,
    BasicDeliver,
    BasicGet,
    BasicGetEmpty,
    BasicQos,
    BasicQosOk,
    ChannelClose,
    ChannelCloseOk,
    ChannelFlow,
    ChannelFlowOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    QueueDeclare,
    QueueDeclareOk,
)
from support.wire.client_peer import Peer, Waiter, body, content, frame, header

NOT_FOUND = ChannelClose(reply_code=404, reply_text="NOT_FOUND - no queue 'q' in vhost '/'")


# -- opening ---------------------------------------------------------------------------------------


def test_a_channel_opens(peer: Peer) -> None:
    token = Waiter()
    channel = peer.session.open_channel(peer.application, token)
    peer.sent_one(ChannelOpen, channel=1)
    with pytest.raises(Closed, match=r"waits for channel\.open-ok"):
        channel.publish(b"", "", "q")
    reply = ChannelOpenOk()
    assert peer.feed(frame(1, reply)) == [Replied(token, reply)]
    assert channel.state is ChannelState.OPEN


def test_a_channel_that_the_broker_refuses(peer: Peer) -> None:
    token = Waiter()
    channel = peer.session.open_channel(peer.application, token)
    (ended,) = peer.feed(frame(1, NOT_FOUND))
    assert isinstance(ended, ChannelEnded)
    assert ended.tokens == (token,)
    assert isinstance(channel.error, NotFound)


def test_numbers_are_the_lowest_free_ones_up_to_channel_max(bytewise: bool) -> None:
    """Behaviours 12 (channel_max) and 15 (dropped until close-ok).

    The number is free right after close-ok, and not before.
    """
    peer = Peer(bytewise, Parameters(channel_max=3)).open()
    channels = [peer.channel() for _ in range(3)]
    assert [channel.number for channel in channels] == [1, 2, 3]
    with pytest.raises(NoFreeChannel):
        peer.session.open_channel(peer.application, Waiter())
    channels[1].close()
    peer.sent()
    with pytest.raises(NoFreeChannel):
        peer.session.open_channel(peer.application, Waiter())
    peer.feed(frame(2, ChannelCloseOk()))
    peer.feed(frame(1, NOT_FOUND))
    peer.sent()
    assert [peer.channel().number for _ in range(2)] == [1, 2]


# -- requests and replies --------------------------------------------------------------------------


def test_replies_come_in_the_order_of_the_requests(peer: Peer) -> None:
    channel = peer.channel()
    declare, qos, get = Waiter(), Waiter(), Waiter()
    channel.request(QueueDeclare(queue="q"), declare)
    channel.request(BasicQos(prefetch_count=1), qos)
    channel.request(BasicGet(queue="q"), get)
    assert [type(method) for _, method in peer.sent()] == [QueueDeclare, BasicQos, BasicGet]
    assert peer.session.awaits_reply
    replies: list[Method] = [QueueDeclareOk("q", 1, 2), BasicQosOk(), BasicGetEmpty()]
    events = peer.feed(*[frame(1, reply) for reply in replies])
    expected = zip([declare, qos, get], replies, strict=True)
    assert events == [Replied(token, reply) for token, reply in expected]
    assert not peer.session.awaits_reply


def test_channels_have_replies_of_their_own(peer: Peer) -> None:
    one, two = peer.channel(), peer.channel()
    first, second = Waiter(), Waiter()
    one.request(BasicQos(), first)
    two.request(BasicQos(), second)
    events = peer.feed(frame(2, BasicQosOk()), frame(1, BasicQosOk()))
    assert [event.token for event in events if isinstance(event, Replied)] == [second, first]


@pytest.mark.parametrize(
    "reply", [QueueDeclareOk(), ChannelOpenOk(), ChannelCloseOk(), BasicConsumeOk(), BasicGet()]
)
@pytest.mark.parametrize("asked", [True, False])
def test_a_reply_that_was_not_asked_for_is_a_fault(peer: Peer, reply: Method, asked: bool) -> None:
    channel = peer.channel()
    if asked:
        channel.request(BasicQos(), Waiter())
        peer.sent()
    ended_channel, ended = peer.feed(frame(1, reply))
    assert isinstance(ended_channel, ChannelEnded)
    assert len(ended_channel.tokens) == asked
    assert isinstance(ended, ConnectionEnded)
    assert peer.sent_one(ConnectionClose).reply_code == 503


def test_what_cannot_be_written_leaves_nothing_behind(peer: Peer) -> None:
    channel = peer.channel()
    with pytest.raises(ValueError, match="255"):
        channel.request(QueueDeclare(queue="q" * 256), Waiter())
    with pytest.raises(ValueError, match="255"):
        channel.publish(b"body", "e" * 256, "")
    assert peer.sent() == []
    token = Waiter()
    channel.request(BasicQos(), token)
    assert peer.feed(frame(1, BasicQosOk())) == [Replied(token, BasicQosOk())]


def test_a_method_must_fit_in_a_frame(bytewise: bool) -> None:
    """Section 4.2.3: only bodies are split."""
    peer = Peer(bytewise, Parameters(frame_max=4096)).open()
    channel = peer.channel()
    bare = len(frame(1, QueueDeclare(arguments={"a": b""})))
    fits = QueueDeclare(arguments={"a": b"x" * (4096 - bare)})
    channel.request(fits, Waiter())
    assert peer.sent() == [(1, fits)]
    with pytest.raises(ValueError, match="a frame holds 4096"):
        channel.request(QueueDeclare(arguments={"a": b"x" * (4097 - bare)}), Waiter())
    assert peer.sent() == []


# -- the broker asks -------------------------------------------------------------------------------


def test_flow_is_answered(peer: Peer) -> None:
    channel = peer.channel()
    assert peer.feed(frame(1, ChannelFlow(active=False))) == [FlowChanged(channel, False)]
    assert peer.sent_one(ChannelFlowOk, channel=1).active is False
    assert peer.feed(frame(1, ChannelFlow(active=True))) == [FlowChanged(channel, True)]
    assert peer.sent_one(ChannelFlowOk, channel=1).active is True


def test_a_consumer_is_cancelled(peer: Peer) -> None:
    """Behaviour 54 (server cancels)."""
    channel = peer.channel()
    cancel = BasicCancel(consumer_tag="ctag", no_wait=True)
    assert peer.feed(frame(1, cancel)) == [Cancelled(channel, "ctag")]
    assert peer.sent() == []


# -- closes ----------------------------------------------------------------------------------------


def test_the_broker_closes_a_channel_and_the_connection_goes_on(peer: Peer) -> None:
    channel, neighbour = peer.channel(), peer.channel()
    token = Waiter()
    channel.request(QueueDeclare(queue="q", passive=True), token)
    peer.sent()
    (ended,) = peer.feed(frame(1, NOT_FOUND))
    assert isinstance(ended, ChannelEnded)
    assert (ended.channel, ended.tokens) == (channel, (token,))
    peer.sent_one(ChannelCloseOk, channel=1)
    for _ in range(2):
        with pytest.raises(NotFound) as caught:
            channel.request(QueueDeclare(queue="q"), Waiter())
        assert caught.value is channel.error
        assert str(caught.value) == "404 NOT_FOUND - no queue 'q' in vhost '/'"
    neighbour.publish(b"", "", "q")
    assert peer.session.state is ConnectionState.OPEN


def test_a_channel_closed_by_an_unknown_code(peer: Peer) -> None:
    channel = peer.channel()
    peer.feed(frame(1, ChannelClose(reply_code=540, reply_text="NOT_IMPLEMENTED")))
    assert "540" in str(channel.error)


def test_frames_for_a_channel_that_closes_are_dropped(peer: Peer) -> None:
    """Behaviour 15 (dropped until close-ok).

    The roles are turned.  Content is dropped too, even when it has begun.
    """
    channel = peer.channel()
    deliver = BasicDeliver(consumer_tag="c", delivery_tag=1)
    assert peer.feed(frame(1, deliver), header(1, 4), body(1, b"ab")) == []
    token = Waiter()
    channel.request(BasicQos(), token)
    channel.close()
    channel.close()
    peer.session.data_to_send()
    assert peer.feed(body(1, b"cd"), content(1, deliver, b"late"), frame(1, BasicQosOk())) == []
    assert peer.session.awaits_reply
    (ended,) = peer.feed(frame(1, ChannelCloseOk()))
    assert ended == ChannelEnded(channel, None, (token,))
    with pytest.raises(Closed):
        channel.publish(b"", "", "q")
    assert not peer.session.awaits_reply


def test_both_sides_close_a_channel_at_once(peer: Peer) -> None:
    """Each answers the other; the number stays taken until our own close is answered."""
    channel = peer.channel()
    channel.close()
    peer.sent()
    assert peer.feed(frame(1, NOT_FOUND)) == []
    peer.sent_one(ChannelCloseOk, channel=1)
    assert peer.session.channels == {1: channel}
    assert peer.feed(frame(1, ChannelCloseOk())) == [ChannelEnded(channel, None, ())]
    assert peer.session.channels == {}


def test_a_reused_number_is_a_new_channel(peer: Peer) -> None:
    first = peer.channel()
    first.request(BasicQos(), Waiter())
    peer.feed(frame(1, NOT_FOUND))
    peer.sent()
    second = peer.channel()
    assert second.number == first.number
    assert isinstance(first.error, NotFound)
    assert second.error is None
    second.close(406, "enough")
    close = peer.sent_one(ChannelClose, channel=1)
    assert (close.reply_code, close.reply_text) == (406, "enough")


def test_a_fault_of_the_broker_closes_only_the_channel(peer: Peer) -> None:
    """A phantom confirm: behaviour 58 (unknown delivery tags) with the roles turned."""
    channel = peer.channel()
    from leveret.wire.methods import BasicAck, ConfirmSelect, ConfirmSelectOk

    channel.request(ConfirmSelect(), Waiter())
    peer.feed(frame(1, ConfirmSelectOk()))
    peer.sent()
    (ended,) = peer.feed(frame(1, BasicAck(delivery_tag=1)))
    assert isinstance(ended, ChannelEnded)
    assert isinstance(ended.error, PreconditionFailed)
    assert peer.sent_one(ChannelClose, channel=1).reply_code == 406
    assert peer.feed(frame(1, ChannelCloseOk())) == []
    assert peer.session.channels == {}
    assert peer.session.state is ConnectionState.OPEN
    with pytest.raises(PreconditionFailed):
        channel.publish(b"", "", "q")
