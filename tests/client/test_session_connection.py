"""The connection's side of a session: handshake, tuning, closes and frames that may not come.

AMQP 0-9-1 sections 1.4, 2.2.4 and 4.2; the reply codes of behaviours 1 to 9 (opening a connection,
frames) with the roles turned.
"""

from __future__ import annotations

import pytest

from leveret.client.errors import Closed, ConnectionLost
from leveret.client.events import Blocked, ChannelEnded, ConnectionEnded, Opened, Replied, Unblocked
from leveret.client.session.connection import CAPABILITIES, ClientConnection
from leveret.client.session.states import ConnectionState
from leveret.client.uri import Parameters
from leveret.errors import (
    AccessRefusedHard,
    AmqpError,
    CommandInvalid,
    ConnectionForced,
    FrameError,
    HardError,
    NotAllowed,
    NotImplementedFault,
)
from leveret.wire.frames import HEARTBEAT, PROTOCOL_HEADER
from leveret.wire.method import Method
from leveret.wire.methods import (
    BasicAck,
    ChannelCloseOk,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    QueueDeclareOk,
)
from support.wire.client_peer import START, TUNE, Peer, Waiter, body, frame, header


def ended_by(peer: Peer, *data: bytes) -> Exception:
    """Return the error that ended the session when it was fed `data`."""
    events = peer.feed(*data)
    ends = [event for event in events if isinstance(event, ConnectionEnded)]
    assert len(ends) == 1
    assert events[-1] is ends[0]
    error = ends[0].error
    assert error is not None
    assert peer.session.error is error
    assert peer.session.state is ConnectionState.CLOSED
    return error


def fault_of(peer: Peer, *data: bytes) -> AmqpError:
    """Return the fault by which the session closed, having told the broker the same."""
    error = ended_by(peer, *data)
    assert isinstance(error, HardError)
    close = peer.sent_one(ConnectionClose)
    assert close.reply_code == error.code
    assert close.reply_text == error.reply_text
    return error


# -- the handshake (section 2.2.4) -----------------------------------------------------------------


def test_the_protocol_header_goes_first() -> None:
    session = ClientConnection(Parameters(), 0)
    assert session.data_to_send() == PROTOCOL_HEADER
    assert session.data_to_send() == b""


def test_the_handshake(bytewise: bool) -> None:
    peer = Peer(bytewise, Parameters(username="us er", password="pässword", vhost="a/b"))
    assert peer.feed(frame(0, START)) == []
    start_ok = peer.sent_one(ConnectionStartOk)
    assert (start_ok.mechanism, start_ok.locale) == ("PLAIN", "en_US")
    assert start_ok.response == "\0us er\0pässword".encode()
    assert start_ok.client_properties["product"] == "Leveret"
    assert start_ok.client_properties["capabilities"] == CAPABILITIES
    assert peer.feed(frame(0, TUNE)) == []
    (_, tune_ok), (_, opening) = peer.sent()
    assert tune_ok == ConnectionTuneOk(channel_max=2047, frame_max=131_072, heartbeat=60)
    assert opening == ConnectionOpen(virtual_host="a/b")
    assert peer.feed(frame(0, ConnectionOpenOk())) == [Opened()]
    assert peer.session.server_properties == {"product": "Peer"}


@pytest.mark.parametrize(
    ("offered", "asked", "agreed"),
    [
        ((2047, 131_072, 60), (None, None, None), (2047, 131_072, 60)),
        ((2047, 131_072, 60), (10, 8192, 5), (10, 8192, 5)),
        ((10, 8192, 5), (2047, 131_072, 60), (10, 8192, 5)),
        ((0, 0, 0), (None, None, None), (65_535, 131_072, 60)),
        ((0, 0, 0), (7, 4096, 9), (7, 4096, 9)),
        ((0, 0, 0), (0, 0, 0), (65_535, 131_072, 0)),
        ((5, 4096, 60), (0, 0, 0), (5, 4096, 0)),
    ],
)
def test_tuning_takes_the_lower_limit_and_0_is_none(
    bytewise: bool,
    offered: tuple[int, int, int],
    asked: tuple[int | None, int | None, int | None],
    agreed: tuple[int, int, int],
) -> None:
    """Behaviour 5 (tuning): a client that exceeds the offer would be refused by 530."""
    parameters = Parameters(channel_max=asked[0], frame_max=asked[1], heartbeat_seconds=asked[2])
    peer = Peer(bytewise, parameters)
    peer.feed(frame(0, START))
    peer.sent()
    peer.feed(frame(0, ConnectionTune(*offered)))
    assert peer.sent()[0][1] == ConnectionTuneOk(*agreed)
    session = peer.session
    assert (session.channel_max, session.frame_max, session.heartbeat_seconds) == agreed


def test_a_frame_size_below_the_least_is_refused(bytewise: bool) -> None:
    peer = Peer(bytewise)
    peer.feed(frame(0, START))
    peer.sent()
    tune = frame(0, ConnectionTune(channel_max=1, frame_max=4095, heartbeat=0))
    assert isinstance(fault_of(peer, tune), NotAllowed)


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (ConnectionStart(mechanisms=b"EXTERNAL ANONYMOUS"), AccessRefusedHard),
        (ConnectionStart(version_major=1, version_minor=0), CommandInvalid),
    ],
)
def test_a_start_that_does_not_suit(bytewise: bool, method: Method, kind: type[HardError]) -> None:
    assert isinstance(fault_of(Peer(bytewise), frame(0, method)), kind)


def test_another_protocol_is_answered_by_a_header(bytewise: bool) -> None:
    """Behaviour 1 (protocol header): a broker that speaks another version says so and hangs up."""
    peer = Peer(bytewise)
    peer.sent()
    error = ended_by(peer, b"AMQP\x03\x01\x00\x00")
    assert isinstance(error, FrameError)
    assert "another protocol" in str(error)
    assert peer.sent() == []


def test_the_login_refused_by_a_close(bytewise: bool) -> None:
    """Behaviour 3 (refused logins): authentication_failure_close."""
    peer = Peer(bytewise)
    peer.feed(frame(0, START))
    peer.sent()
    text = "ACCESS_REFUSED - Login was refused"
    error = ended_by(peer, frame(0, ConnectionClose(reply_code=403, reply_text=text)))
    assert isinstance(error, AccessRefusedHard)
    assert str(error) == f"403 {text}"
    peer.sent_one(ConnectionCloseOk)


def test_the_login_refused_by_hanging_up(bytewise: bool) -> None:
    peer = Peer(bytewise)
    peer.feed(frame(0, START))
    (end,) = peer.session.lost("the broker hung up")
    assert isinstance(end, ConnectionEnded)
    assert isinstance(end.error, ConnectionLost)
    assert "password" in str(end.error)


def test_a_challenge_has_no_answer(bytewise: bool) -> None:
    peer = Peer(bytewise)
    peer.feed(frame(0, START))
    peer.sent()
    secure = frame(0, ConnectionSecure(challenge=b"?"))
    assert isinstance(fault_of(peer, secure), NotImplementedFault)


@pytest.mark.parametrize("method", [TUNE, ConnectionOpenOk(), ConnectionBlocked(), BasicAck()])
def test_a_method_before_its_time(bytewise: bool, method: Method) -> None:
    peer = Peer(bytewise)
    peer.feed(frame(0, START))
    peer.sent()
    if method is TUNE:
        peer.feed(frame(0, TUNE))
        peer.sent()
    assert isinstance(fault_of(peer, frame(0, method)), CommandInvalid)


def test_nothing_can_be_asked_before_the_handshake_is_done(bytewise: bool) -> None:
    peer = Peer(bytewise)
    with pytest.raises(Closed, match=r"waits for connection\.start"):
        peer.session.open_channel(peer.application, Waiter())


# -- an open connection ----------------------------------------------------------------------------


def test_blocked_and_unblocked(peer: Peer) -> None:
    """Behaviour 16 (alarms)."""
    events = peer.feed(
        frame(0, ConnectionBlocked("low on memory")), frame(0, ConnectionUnblocked())
    )
    assert events == [Blocked("low on memory"), Unblocked()]
    assert peer.sent() == []


def test_a_heartbeat_is_taken(peer: Peer) -> None:
    assert peer.feed(HEARTBEAT, HEARTBEAT) == []
    assert peer.session.state is ConnectionState.OPEN


def test_a_secret_is_updated(peer: Peer) -> None:
    token = Waiter()
    peer.session.request(ConnectionUpdateSecret(new_secret=b"s", reason="r"), token)
    assert peer.sent_one(ConnectionUpdateSecret).new_secret == b"s"
    assert peer.session.awaits_reply
    reply = ConnectionUpdateSecretOk()
    assert peer.feed(frame(0, reply)) == [Replied(token, reply)]
    assert not peer.session.awaits_reply


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(0, ConnectionUpdateSecretOk()), 503),
        (frame(0, ConnectionOpenOk()), 503),
        (frame(0, QueueDeclareOk()), 503),
        (header(0, 1), 505),
        (body(0, b"x"), 505),
        (b"\x08\x00\x01\x00\x00\x00\x00\xce", 504),
        (frame(7, ChannelOpenOk()), 504),
        (header(7, 1), 504),
        (b"\x04\x00\x00\x00\x00\x00\x00\xce", 501),
        (b"\x08\x00\x00\x00\x00\x00\x00\xcd", 501),
        (b"\x01\x00\x00" + (131_073).to_bytes(4), 501),
        (b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x03\xe7\xce", 540),
        (b"\x01\x00\x00\x00\x00\x00\x04\x00\x0a\x00\x32\xce", 502),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_frames_that_may_not_come_end_the_connection(peer: Peer, data: bytes, code: int) -> None:
    """Behaviours 7 (bad frames), 8 (heartbeats), 9 (content order) and 11 (opening a channel).

    The roles are turned.
    """
    assert fault_of(peer, data).code == code
    assert peer.feed(frame(0, ConnectionCloseOk())) == []


def test_a_heartbeat_on_an_open_channel(peer: Peer) -> None:
    """Behaviour 8 (heartbeats)."""
    peer.channel()
    assert fault_of(peer, b"\x08\x00\x01\x00\x00\x00\x00\xce").code == 505


# -- closes ----------------------------------------------------------------------------------------


def test_the_broker_closes(peer: Peer) -> None:
    channel = peer.channel()
    token = Waiter()
    peer.session.request(ConnectionUpdateSecret(), token)
    peer.sent()
    close = ConnectionClose(reply_code=320, reply_text="CONNECTION_FORCED - shutdown")
    ended_channel, ended = peer.feed(frame(0, close))
    peer.sent_one(ConnectionCloseOk)
    assert isinstance(ended_channel, ChannelEnded)
    assert isinstance(ended, ConnectionEnded)
    assert isinstance(ended.error, ConnectionForced)
    assert str(ended.error) == "320 CONNECTION_FORCED - shutdown"
    assert ended.tokens == (token,)
    assert (ended_channel.channel, ended_channel.error) == (channel, ended.error)
    for _ in range(2):
        with pytest.raises(ConnectionForced, match="shutdown"):
            peer.session.open_channel(peer.application, Waiter())
        with pytest.raises(ConnectionForced, match="shutdown"):
            channel.publish(b"", "", "q")


def test_a_close_with_an_unknown_code(peer: Peer) -> None:
    error = ended_by(peer, frame(0, ConnectionClose(reply_code=599, reply_text="odd")))
    assert isinstance(error, HardError)
    assert "599" in str(error)


def test_this_side_closes(peer: Peer) -> None:
    channel = peer.channel()
    peer.session.close()
    peer.session.close()
    assert peer.sent_one(ConnectionClose).reply_code == 200
    assert peer.feed(frame(0, ConnectionBlocked()), frame(1, BasicAck()), header(1, 5)) == []
    ended_channel, ended = peer.feed(frame(0, ConnectionCloseOk()))
    assert isinstance(ended_channel, ChannelEnded)
    assert ended == ConnectionEnded(None)
    assert ended_channel.error is None
    assert channel.error is None
    with pytest.raises(Closed):
        peer.session.open_channel(peer.application, Waiter())


def test_both_sides_close_at_once(peer: Peer) -> None:
    peer.session.close()
    peer.sent()
    assert peer.feed(frame(0, ConnectionClose(reply_code=320))) == []
    peer.sent_one(ConnectionCloseOk)
    assert peer.feed(frame(0, ConnectionCloseOk())) == [ConnectionEnded(None)]


def test_the_socket_ends(peer: Peer) -> None:
    peer.channel()
    ended_channel, ended = peer.session.lost("the broker hung up")
    assert isinstance(ended_channel, ChannelEnded)
    assert isinstance(ended, ConnectionEnded)
    assert isinstance(ended.error, ConnectionLost)
    assert peer.session.lost("again") == []
    assert peer.feed(frame(0, ConnectionBlocked())) == []


def test_the_socket_ends_after_our_close(peer: Peer) -> None:
    peer.session.close()
    assert peer.session.lost("the broker hung up") == [ConnectionEnded(None)]


def test_the_application_cannot_go_on(peer: Peer) -> None:
    error = RuntimeError("too much")
    assert peer.session.abort(error) == [ConnectionEnded(error)]
    close = peer.sent_one(ConnectionClose)
    assert (close.reply_code, close.reply_text) == (506, "too much")
    with pytest.raises(RuntimeError, match="too much"):
        peer.session.check_open()


def test_a_close_answered_for_a_channel_that_closes_too(peer: Peer) -> None:
    channel = peer.channel()
    channel.close()
    peer.session.close()
    peer.sent()
    assert len(peer.feed(frame(1, ChannelCloseOk()))) == 1
    assert peer.feed(frame(0, ConnectionCloseOk())) == [ConnectionEnded(None)]


def test_texts_that_do_not_fit_are_cut(peer: Peer) -> None:
    peer.session.close(320, "ü" * 200)
    assert peer.sent_one(ConnectionClose).reply_text == "ü" * 127
