"""Content in a session: assembling what comes and splitting what goes (section 4.2.6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.client.events import CameBack, ChannelEnded, ConnectionEnded, Replied
from leveret.client.message import Message
from leveret.client.session.states import ConnectionState
from leveret.client.uri import Parameters
from leveret.errors import ContentTooLarge, SyntaxFault
from leveret.limits import CLIENT_MESSAGE_BYTES_MAX
from leveret.wire.methods import (
    BasicDeliver,
    BasicGet,
    BasicGetOk,
    BasicPublish,
    BasicQos,
    BasicQosOk,
    BasicReturn,
    ChannelClose,
    ConnectionClose,
)
from leveret.wire.properties import BasicProperties
from support.wire.client_peer import Peer, Waiter, body, content, frame, header

DELIVER = BasicDeliver("ctag", 7, True, "exchange", "routing.key")
PROPERTIES = BasicProperties(content_type="text/plain", headers={"a": 1})


# -- what comes ------------------------------------------------------------------------------------


def test_a_delivery(peer: Peer) -> None:
    peer.channel()
    (message,) = peer.feed(content(1, DELIVER, b"body", PROPERTIES.encode()))
    assert isinstance(message, Message)
    assert message.body == b"body"
    assert message.properties == PROPERTIES
    assert message.properties is message.properties
    assert message.headers == {"a": 1}
    assert (message.exchange, message.routing_key) == ("exchange", "routing.key")
    assert (message.consumer_tag, message.delivery_tag) == ("ctag", 7)
    assert message.redelivered
    assert message.message_count is None


def test_a_message_acks_by_its_owner(peer: Peer) -> None:
    peer.channel()
    (message,) = peer.feed(content(1, DELIVER, b"body"))
    assert isinstance(message, Message)
    message.ack()
    message.nack(requeue=False)
    message.reject(requeue=True)
    assert peer.application.acks == [("ack", 7, False), ("nack", 7, False), ("reject", 7, True)]


def test_a_body_of_no_bytes_needs_no_frame(peer: Peer) -> None:
    """Behaviour 10 (empty bodies)."""
    peer.channel()
    (message,) = peer.feed(frame(1, DELIVER), header(1, 0))
    assert isinstance(message, Message)
    assert message.body == b""
    assert message.properties == BasicProperties()


@given(pieces=st.lists(st.binary(max_size=20), max_size=8), bytewise=st.booleans())
def test_a_body_comes_in_any_pieces(pieces: list[bytes], bytewise: bool) -> None:
    peer = Peer(bytewise).open()
    peer.channel()
    whole = b"".join(pieces)
    while pieces and not pieces[-1]:
        pieces.pop()  # an empty frame after the last byte belongs to nothing
    frames = [body(1, piece) for piece in pieces]
    (message,) = peer.feed(frame(1, DELIVER), header(1, len(whole)), *frames)
    assert isinstance(message, Message)
    assert message.body == whole


def test_channels_may_take_turns_within_their_content(peer: Peer) -> None:
    peer.channel()
    peer.channel()
    two = BasicDeliver("two", 1)
    events = peer.feed(
        frame(1, DELIVER), frame(2, two), header(2, 4), header(1, 4), body(1, b"on"),
        body(2, b"tw"), body(2, b"o!"), body(1, b"e!"),
    )  # fmt: skip
    bodies = [event.body for event in events if isinstance(event, Message)]
    assert bodies == [b"two!", b"one!"]


def test_a_message_that_was_got(peer: Peer) -> None:
    channel = peer.channel()
    token, after = Waiter(), Waiter()
    channel.request(BasicGet(queue="q"), token)
    channel.request(BasicQos(), after)
    got = BasicGetOk(3, False, "e", "k", 9)
    replied, other = peer.feed(content(1, got, b"body"), frame(1, BasicQosOk()))
    assert isinstance(replied, Replied)
    assert isinstance(other, Replied)
    assert (replied.token, other.token) == (token, after)
    assert replied.message is not None
    assert (replied.message.body, replied.message.delivery_tag) == (b"body", 3)
    assert (replied.message.consumer_tag, replied.message.message_count) == ("", 9)


def test_a_returned_message(peer: Peer) -> None:
    channel = peer.channel()
    returned = BasicReturn(312, "NO_ROUTE", "e", "k")
    (event,) = peer.feed(content(1, returned, b"body", PROPERTIES.encode()))
    assert isinstance(event, CameBack)
    assert event.channel is channel
    message = event.message
    assert (message.reply_code, message.reply_text) == (312, "NO_ROUTE")
    assert (message.exchange, message.routing_key) == ("e", "k")
    assert (message.body, message.properties) == (b"body", PROPERTIES)


@pytest.mark.parametrize(
    "data",
    [
        header(1, 4),
        body(1, b"x"),
        frame(1, DELIVER) + body(1, b"x"),
        frame(1, DELIVER) + frame(1, DELIVER),
        frame(1, DELIVER) + frame(1, BasicQosOk()),
        frame(1, DELIVER) + header(1, 4, class_id=90),
        frame(1, DELIVER) + header(1, 4) + header(1, 4),
        frame(1, DELIVER) + header(1, 4) + body(1, b"12345"),
        frame(1, DELIVER) + header(1, 4) + body(1, b"12") + body(1, b"345"),
        frame(1, DELIVER) + header(1, 4) + body(1, b"12") + frame(1, DELIVER),
        frame(1, DELIVER) + header(1, 0) + body(1, b""),
    ],
)
def test_content_out_of_sequence_is_an_unexpected_frame(peer: Peer, data: bytes) -> None:
    """Behaviour 9 (content order)."""
    peer.channel()
    events = peer.feed(data)
    assert isinstance(events[-1], ConnectionEnded)
    assert peer.sent_one(ConnectionClose).reply_code == 505


@pytest.mark.parametrize(("size", "code"), [(13, 501), (0, 501)])
def test_a_content_header_that_is_too_short(peer: Peer, size: int, code: int) -> None:
    peer.channel()
    short = b"\x02\x00\x01" + size.to_bytes(4) + (b"\x00\x3c" + bytes(12))[:size] + b"\xce"
    events = peer.feed(frame(1, DELIVER), short)
    assert isinstance(events[-1], ConnectionEnded)
    assert peer.sent_one(ConnectionClose).reply_code == code


def test_a_body_beyond_the_limit_closes_the_channel(peer: Peer) -> None:
    channel = peer.channel()
    assert peer.feed(frame(1, DELIVER), header(1, CLIENT_MESSAGE_BYTES_MAX)) == []
    neighbour = peer.channel()
    (ended,) = peer.feed(frame(2, DELIVER), header(2, CLIENT_MESSAGE_BYTES_MAX + 1))
    assert isinstance(ended, ChannelEnded)
    assert ended.channel is neighbour
    assert isinstance(ended.error, ContentTooLarge)
    assert peer.sent_one(ChannelClose, channel=2).reply_code == 311
    assert peer.feed(body(2, b"dropped")) == []
    assert channel.error is None
    assert peer.session.state is ConnectionState.OPEN


def test_properties_that_are_malformed_hurt_only_who_reads_them(peer: Peer) -> None:
    peer.channel()
    (message,) = peer.feed(content(1, DELIVER, b"body", b"\x80\x00\xff"))
    assert isinstance(message, Message)
    assert message.body == b"body"
    with pytest.raises(SyntaxFault):
        _ = message.properties


# -- what goes -------------------------------------------------------------------------------------


def test_a_publish(peer: Peer) -> None:
    channel = peer.channel()
    assert channel.publish(b"body", "e", "k", PROPERTIES.encode(), mandatory=True) == 0
    (_, publish), (_, head), (_, piece) = peer.sent()
    assert publish == BasicPublish(exchange="e", routing_key="k", mandatory=True)
    assert head == b"\x00\x3c\x00\x00" + (4).to_bytes(8) + PROPERTIES.encode()
    assert piece == b"body"


def test_each_publish_has_its_own_address(peer: Peer) -> None:
    channel = peer.channel()
    wanted = [("e", "k", False), ("e", "k", True), ("e", "j", True), ("f", "j", True)]
    for exchange, routing_key, mandatory in wanted:
        channel.publish(b"", exchange, routing_key, mandatory=mandatory)
    found = [method for _, method in peer.sent() if isinstance(method, BasicPublish)]
    assert [(one.exchange, one.routing_key, one.mandatory) for one in found] == wanted


@pytest.mark.parametrize("size", [0, 1, 4088, 4089, 8176, 8177, 100_000])
def test_a_body_is_split_at_the_frame_size(bytewise: bool, size: int) -> None:
    """Section 4.2.6: frame_max counts the frame's 8 bytes of overhead."""
    peer = Peer(bytewise, Parameters(frame_max=4096)).open()
    channel = peer.channel()
    channel.publish(bytes(size), "", "q")
    pieces = [piece for _, piece in peer.sent()[2:]]
    sizes = [len(piece) for piece in pieces if isinstance(piece, bytes)]
    assert sum(sizes) == size
    assert sizes == [4088] * (size // 4088) + [size % 4088] * (size % 4088 > 0)


def test_properties_must_fit_in_a_frame(bytewise: bool) -> None:
    peer = Peer(bytewise, Parameters(frame_max=4096)).open()
    channel = peer.channel()
    room = 4096 - len(header(1, 0, b""))
    channel.publish(b"", "", "q", bytes(room))
    assert len(peer.sent()) == 2
    with pytest.raises(ValueError, match="a frame holds 4096"):
        channel.publish(b"", "", "q", bytes(room + 1))
    assert peer.sent() == []
