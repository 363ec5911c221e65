"""Whatever bytes a broker sends, a session answers with events: it raises nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.client.events import ChannelEnded, ConnectionEnded
from leveret.client.session.connection import ClientConnection
from leveret.client.session.states import ConnectionState
from leveret.client.uri import Parameters
from leveret.wire.frames import HEARTBEAT
from leveret.wire.methods import BasicQos
from support.wire.client_peer import Peer, Waiter, body, content, frame, header
from support.wire.wire_strategies import any_method

FRAMES = st.one_of(
    st.builds(frame, st.integers(0, 2), any_method),
    st.builds(header, st.integers(0, 2), st.integers(0, 8), st.binary(max_size=4)),
    st.builds(body, st.integers(0, 2), st.binary(max_size=8)),
    st.just(HEARTBEAT),
    st.binary(max_size=12),
)


@given(st.lists(FRAMES, max_size=20))
def test_any_frames_on_an_open_connection(frames: list[bytes]) -> None:
    peer = Peer(False).open()
    tokens = [Waiter() for _ in range(2)]
    for token in tokens:
        peer.channel().request(BasicQos(), token)
    events = [event for data in frames for event in peer.feed(data)]
    ends = [event for event in events if isinstance(event, ConnectionEnded)]
    assert len(ends) == (peer.session.state is ConnectionState.CLOSED)
    ended = [event.channel for event in events if isinstance(event, ChannelEnded)]
    assert len(ended) == len(set(map(id, ended)))
    if ends:
        assert events[-1] is ends[0]
        assert len(ended) == 2
        assert peer.session.lost("end") == []


@given(st.lists(FRAMES, max_size=20))
def test_frames_mean_the_same_whole_and_byte_by_byte(frames: list[bytes]) -> None:
    kinds = []
    for bytewise in (False, True):
        peer = Peer(bytewise).open()
        peer.channel()
        events = peer.feed(*frames)
        kinds.append([type(event).__name__ for event in events])
    assert kinds[0] == kinds[1]


@given(st.lists(st.binary(), max_size=10))
def test_any_bytes_from_the_start(pieces: list[bytes]) -> None:
    session = ClientConnection(Parameters(), 0)
    for piece in pieces:
        session.receive(piece)
    session.lost("end")
    assert session.state is ConnectionState.CLOSED


@given(st.binary(max_size=60))
def test_any_property_bytes(properties: bytes) -> None:
    from leveret.client.message import Message
    from leveret.errors import SyntaxFault
    from leveret.wire.methods import BasicDeliver

    peer = Peer(False).open()
    peer.channel()
    for event in peer.feed(content(1, BasicDeliver("c", 1), b"x", properties)):
        if isinstance(event, Message):
            try:
                _ = event.headers
            except SyntaxFault:
                continue
