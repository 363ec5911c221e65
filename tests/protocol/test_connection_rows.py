"""Behaviours 1-16: the protocol header, login, tune, frames, channels and closing."""

from __future__ import annotations

import socket
import struct
from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import Broker, Client, Dial, need_own_broker, unique
from support.wire import raw

SILENT = dict.fromkeys(raw.CAPABILITIES, False)


# -- 1: the protocol header


@pytest.mark.parametrize(
    "header",
    [
        b"AMQP\x00\x00\x09\x02",
        b"AMQP\x02\x01\x00\x00",
        b"AMQP\x00\x09\x01\x00",
        b"\0" * 8,
    ],
    ids=["0-9-2", "1.0-tls", "revision", "zeros"],
)
def test_b01_bad_protocol_header_is_answered_by_the_header(dial: Dial, header: bytes) -> None:
    """1 (section 4.2.2): the broker writes its own header and closes; no close frame."""
    connection = dial()
    connection.send(header)
    assert connection.take(8) == raw.PROTOCOL_HEADER
    connection.expect_end()


def test_b01_socket_closed_inside_the_header(dial: Dial) -> None:
    """1: a peer that goes away early is nobody's concern."""
    connection = dial()
    connection.send(b"AMQP\x00")
    connection.socket.shutdown(socket.SHUT_WR)
    connection.expect_end()


# -- 2, 3, 4, 6: login


def expect_refused(connection: raw.Connection, broker: Broker, code: int, text: str = "") -> None:
    """RabbitMQ 3.10 logs the code and ends in silence before connection.open."""
    if broker.is_rabbitmq:
        connection.expect_end()
    else:
        connection.expect_connection_close(code, text)


def test_b02_unknown_mechanism_is_503(dial: Dial, broker: Broker) -> None:
    """2: 503 to a client that understands a close here (RabbitMQ only logs the code)."""
    connection = dial()
    connection.start(raw.Login(mechanism="CRAM-MD5"))
    expect_refused(connection, broker, 503)


@pytest.mark.parametrize("response", [b"", b"guest", b"\0guest", b"guest\0guest"])
def test_b02_malformed_plain_is_502(dial: Dial, broker: Broker, response: bytes) -> None:
    """2: a PLAIN response without its two NULs."""
    connection = dial()
    connection.start(raw.Login(response=response))
    expect_refused(connection, broker, 502)


@pytest.mark.parametrize(
    "login",
    [
        raw.Login(password="wrong"),
        raw.Login(password=""),
        raw.Login(user="nobody"),
        raw.Login(user="", password=""),
        raw.Login(
            mechanism="AMQPLAIN",
            response=raw.table({"LOGIN": "guest", "PASSWORD": "wrong"})[4:],
        ),
    ],
    ids=["wrong", "empty", "nobody", "all-empty", "amqplain"],
)
def test_b03_wrong_password_is_403_before_open(dial: Dial, login: raw.Login) -> None:
    """3: with authentication_failure_close the close comes before open, without detail."""
    connection = dial()
    connection.start(login)
    connection.expect_connection_close(
        403,
        f"ACCESS_REFUSED - Login was refused using authentication mechanism {login.mechanism}. "
        "For details see the broker logfile.",
    )


def test_b03_wrong_password_without_the_capability_is_silence(dial: Dial) -> None:
    """3: the socket closes after a delay and nothing is written."""
    connection = dial()
    connection.start(raw.Login(password="wrong", capabilities=SILENT))
    connection.expect_end()


def test_b03_amqplain_opens(dial: Dial) -> None:
    """3: AMQPLAIN is a table without its length."""
    response = raw.table({"LOGIN": "guest", "PASSWORD": "guest"})[4:]
    dial().handshake(raw.Login(mechanism="AMQPLAIN", response=response)).close()


def test_b04_guest_only_over_loopback(tmp_path: Path) -> None:
    """4: judged by the peer's address; the same broker's loopback is tested everywhere else."""
    need_own_broker()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: chooses the interface
        except OSError:
            pytest.skip("the machine has no address but loopback")
        address = probe.getsockname()[0]
    if address.startswith("127."):
        pytest.skip("the machine has no address but loopback")
    with (
        BrokerProcess(tmp_path, host=address) as process,
        raw.Connection(address, process.port) as connection,
    ):
        connection.start(raw.Login())
        connection.expect_connection_close(403, "ACCESS_REFUSED - Login was refused")


# -- 5: tune


def test_b05_offer_is_rabbitmqs(connection: raw.Connection) -> None:
    """5: 2047 channels, 131072 bytes, 60 s."""
    assert connection.tune is not None
    offer = connection.tune.fields
    assert offer == {"channel_max": 2047, "frame_max": 131_072, "heartbeat": 60}


@pytest.mark.parametrize(
    "login",
    [
        raw.Login(frame_max=4095),
        raw.Login(frame_max=131_073),
        raw.Login(frame_max=0),
        raw.Login(channel_max=2048),
        raw.Login(channel_max=0),
    ],
    ids=["frame-small", "frame-large", "frame-unlimited", "channels-many", "channels-unlimited"],
)
def test_b05_tune_ok_beyond_the_offer_is_530(dial: Dial, login: raw.Login, broker: Broker) -> None:
    """5: frame_max below the least or above the offer, channel_max above it; 0 means no limit."""
    connection = dial()
    connection.start(login)
    connection.tune_ok(login)
    expect_refused(connection, broker, 530, "NOT_ALLOWED - ")


@pytest.mark.parametrize("frame_max", [4096, 131_072])
def test_b05_tune_ok_at_the_limits(dial: Dial, frame_max: int) -> None:
    """5: both ends of what is allowed; a body is split by what was agreed."""
    connection = dial().handshake(raw.Login(frame_max=frame_max, channel_max=1))
    connection.open_channel(1)
    queue = connection.declare(1, exclusive=True).queue
    body = b"x" * 10_000
    head = raw.method(1, "basic.publish", routing_key=queue)
    connection.send(head, raw.content(1, body, piece=frame_max - 8))
    connection.send(raw.method(1, "basic.get", queue=queue, no_ack=True))
    sizes: list[int] = []
    while sum(sizes) < len(body):
        one = connection.next_frame()
        assert len(one.payload) <= frame_max - 8
        if one.kind == raw.BODY:
            sizes.append(len(one.payload))
    assert sum(sizes) == len(body)
    assert len(sizes) == -(-len(body) // (frame_max - 8))


def test_b06_missing_vhost_is_530(dial: Dial) -> None:
    """6: the vhost of connection.open."""
    login = raw.Login(vhost=unique("no-vhost"))
    connection = dial()
    connection.start(login)
    connection.tune_ok(login)
    connection.send(raw.method(0, "connection.open", vhost=login.vhost))
    connection.expect_connection_close(
        530, f"NOT_ALLOWED - vhost {login.vhost} not found", (10, 40)
    )


# -- 7, 8, 9, 10: frames


def test_b07_frame_larger_than_frame_max_is_501(client: Client) -> None:
    """7: judged by the seven bytes of the frame's header, before the payload has come."""
    connection = client(raw.Login(frame_max=4096))
    connection.send(struct.pack(">BHI", raw.BODY, 1, 4096 + 1))
    connection.expect_connection_close(501, "FRAME_ERROR", (0, 0))


def test_b07_frame_of_four_gigabytes_is_501(connection: raw.Connection) -> None:
    """7: nothing is allocated for it."""
    connection.send(struct.pack(">BHI", raw.METHOD, 1, 2**32 - 1))
    connection.expect_connection_close(501, "FRAME_ERROR", (0, 0))


def test_b07_payload_of_frame_max_is_tolerated(client: Client, name: str) -> None:
    """7: RabbitMQ tolerates the frame's own eight bytes beyond frame_max."""
    connection = client(raw.Login(frame_max=4096))
    connection.declare(1, name, exclusive=True)
    head = raw.method(1, "basic.publish", routing_key=name)
    connection.send(head, raw.content(1, b"y" * 4096, piece=4096))
    got = connection.get(1, name)
    assert got is not None
    assert got.body == b"y" * 4096


def test_b07_bad_frame_end_is_501(connection: raw.Connection) -> None:
    """7 (section 4.2.3): the end octet is 0xCE."""
    good = raw.method(1, "basic.qos")
    connection.send(good[:-1] + b"\xcd")
    connection.expect_connection_close(501, "FRAME_ERROR")


@pytest.mark.parametrize("kind", [0, 4, 7, 9, 255])
def test_b07_unknown_frame_type_is_501(connection: raw.Connection, kind: int) -> None:
    """7 (section 4.2.3): types are 1, 2, 3 and 8."""
    connection.send(raw.frame(kind, 1, b"abcd"))
    connection.expect_connection_close(501, "FRAME_ERROR")


def test_b07_method_frame_too_short_is_501(connection: raw.Connection) -> None:
    """7: a method frame without its two ids."""
    connection.send(raw.frame(raw.METHOD, 1, b"\0\x3c"))
    connection.expect_connection_close(501, "FRAME_ERROR")


def test_b08_heartbeat_on_a_channel_is_an_error(connection: raw.Connection) -> None:
    """8 (section 4.2.7): heartbeats belong to channel 0."""
    connection.send(raw.frame(raw.HEARTBEAT, 1, b""))
    connection.expect_connection_close(505, "UNEXPECTED_FRAME")


def test_b08_heartbeat_on_channel_0_is_nothing(connection: raw.Connection) -> None:
    """8: it has no reply and no effect."""
    connection.send(raw.frame(raw.HEARTBEAT, 0, b"") * 3)
    connection.sync(1)


def test_b08_traffic_counts_as_heartbeat_and_silence_ends(whole: Client) -> None:
    """8: with an interval of 1 s the broker's own heartbeats are this test's clock."""
    connection = whole(raw.Login(heartbeat=1))
    for _ in range(4):  # longer than what silence is allowed
        assert connection.next_frame() == raw.Frame(raw.HEARTBEAT, 0, b"")
        connection.sync(1)
    connection.expect_heartbeats_and_end()  # RabbitMQ closes the socket without a close frame


def publish_head() -> bytes:
    """A publish of one body byte, up to its content."""
    return raw.method(1, "basic.publish", routing_key="nowhere")


@pytest.mark.parametrize(
    "sent",
    [
        raw.header(1, 1),
        raw.frame(raw.BODY, 1, b"x"),
        publish_head() + raw.method(1, "basic.qos"),
        publish_head() + publish_head(),
        publish_head() + raw.frame(raw.BODY, 1, b"x"),
        publish_head() + raw.header(1, 2) + raw.header(1, 2),
        publish_head() + raw.header(1, 2) + raw.method(1, "basic.qos"),
        publish_head() + raw.header(1, 1, class_id=50),
    ],
    ids=[
        "header-alone", "body-alone", "method-for-header", "publish-for-header", "body-for-header",
        "header-for-body", "method-for-body", "header-of-other-class",
    ],
)  # fmt: skip
def test_b09_content_out_of_order_is_505(connection: raw.Connection, sent: bytes) -> None:
    """9 (section 4.2.6): method, header, bodies, nothing between them on that channel."""
    connection.send(sent)
    connection.expect_connection_close(505, "UNEXPECTED_FRAME")


def test_b09_body_beyond_its_size_is_505(connection: raw.Connection, broker: Broker) -> None:
    """9: more bytes than the header said."""
    if broker.is_rabbitmq:
        pytest.skip("RabbitMQ 3.10 counts below zero and waits for ever")
    connection.send(publish_head(), raw.header(1, 2), raw.frame(raw.BODY, 1, b"xyz"))
    connection.expect_connection_close(505, "UNEXPECTED_FRAME")


def test_b09_other_channels_may_come_between(connection: raw.Connection, name: str) -> None:
    """9: content of two channels may be mixed frame by frame."""
    connection.open_channel(2)
    connection.declare(1, name, exclusive=True)
    parts = []
    for channel in (1, 2):
        head = raw.method(channel, "basic.publish", routing_key=name)
        bodies = [raw.frame(raw.BODY, channel, bytes([48 + channel, i])) for i in (65, 66)]
        parts.append([head, raw.header(channel, 4), *bodies])
    for pair in zip(*parts, strict=True):
        connection.send(raw.frame(raw.HEARTBEAT, 0, b""), *pair)
    connection.sync(2)
    assert sorted(connection.drain(1, name)) == [b"1A1B", b"2A2B"]


def test_b10_empty_body_is_complete_at_its_header(connection: raw.Connection, name: str) -> None:
    """10: no body frame in, none out."""
    connection.declare(1, name, exclusive=True)
    connection.send(raw.publish(1, "", name, b""), raw.publish(1, "", name, b"next"))
    assert connection.drain(1, name) == [b"", b"next"]


def test_b10_empty_body_frames_are_harmless(connection: raw.Connection, name: str) -> None:
    """10: an empty frame inside a body adds nothing."""
    connection.declare(1, name, exclusive=True)
    head = raw.method(1, "basic.publish", routing_key=name)
    pieces = [raw.frame(raw.BODY, 1, p) for p in (b"", b"a", b"", b"b")]
    connection.send(head, raw.header(1, 2), *pieces)
    assert connection.drain(1, name) == [b"ab"]


# -- 11, 12, 13, 15: channels and closing


def test_b11_second_channel_open_is_504(connection: raw.Connection) -> None:
    """11: an open channel cannot be opened."""
    connection.send(raw.method(1, "channel.open"))
    connection.expect_connection_close(504, "CHANNEL_ERROR - second 'channel.open' seen", (20, 10))


@pytest.mark.parametrize(
    "sent",
    [raw.method(7, "queue.declare"), raw.publish(7, "", "q", b"x"), raw.method(7, "basic.qos")],
    ids=["declare", "publish", "qos"],
)
def test_b11_method_on_an_unopened_channel_is_504(connection: raw.Connection, sent: bytes) -> None:
    """11: anything but channel.open."""
    connection.send(sent)
    connection.expect_connection_close(504, "CHANNEL_ERROR - expected 'channel.open'")


def test_b11_method_on_a_closed_channel_is_504(connection: raw.Connection) -> None:
    """11: after the channel's close the number is unopened again."""
    connection.call(1, "channel.close", code=200)
    connection.send(raw.method(1, "basic.qos"))
    connection.expect_connection_close(504, "CHANNEL_ERROR - expected 'channel.open'")


def test_b12_more_channels_than_agreed_is_530(client: Client) -> None:
    """12: the count is limited."""
    connection = client(raw.Login(channel_max=2))
    connection.open_channel(2)
    connection.send(raw.method(3, "channel.open"))
    connection.expect_connection_close(530, "NOT_ALLOWED")


def test_b12_channel_numbers_are_free(client: Client) -> None:
    """12: not the number (aiormq opens 65535); a closed channel makes room."""
    connection = client(raw.Login(channel_max=2))
    connection.open_channel(65_535)
    connection.sync(65_535)
    connection.call(65_535, "channel.close", code=200)
    connection.open_channel(30_000)
    connection.sync(30_000)


def test_b12_all_offered_channels_open(whole: Client) -> None:
    """12: 2047 at once, each works."""
    connection = whole(channel=False)
    numbers = range(1, 2048)
    connection.send(*[raw.method(n, "channel.open") for n in numbers])
    assert {connection.next_method().channel for _ in numbers} == set(numbers)
    connection.send(*[raw.method(n, "basic.qos") for n in numbers])
    assert {connection.next_method().channel for _ in numbers} == set(numbers)
    connection.close()


def test_b13_exclusive_queues_go_before_close_ok(client: Client, name: str) -> None:
    """13: whoever saw close-ok may declare the name again."""
    first, second = client(), client()
    first.declare(1, name, exclusive=True)
    second.send(raw.method(1, "queue.declare", queue=name, passive=True))
    second.expect_channel_close(1, 405)
    first.close()
    second.open_channel(1)
    second.send(raw.method(1, "queue.declare", queue=name, passive=True))
    second.expect_channel_close(1, 404, f"NOT_FOUND - no queue '{name}' in vhost '/'", (50, 10))


def test_b13_exclusive_queues_go_with_a_lost_socket(client: Client, name: str) -> None:
    """13: without a close handshake they go as well, soon: the name becomes free."""
    first, second = client(), client()
    first.declare(1, name, exclusive=True)
    first.socket.close()
    while True:
        second.send(raw.method(1, "queue.declare", queue=name, exclusive=True))
        if second.next_method().name == "queue.declare-ok":
            break
        second.send(raw.method(1, "channel.close-ok"))
        second.open_channel(1)


def test_b15_frames_of_a_closing_channel_are_dropped(connection: raw.Connection, name: str) -> None:
    """15: methods and content alike, until close-ok; then the number is free at once."""
    connection.declare(1, name, exclusive=True)
    connection.open_channel(2)
    connection.send(
        raw.method(2, "queue.declare", queue=unique(), passive=True),  # 404
        raw.method(2, "queue.declare", queue=name + "x"),
        raw.publish(2, "", name, b"dropped"),
        raw.method(2, "basic.publish", routing_key=name),
        raw.header(2, 3),
    )
    connection.expect(2, "channel.close")
    connection.send(raw.frame(raw.BODY, 2, b"abc"), raw.publish(2, "", name, b"dropped too"))
    connection.send(raw.method(2, "channel.close-ok"))
    connection.open_channel(2)
    connection.sync(2)
    assert connection.drain(1, name) == []
    connection.send(raw.method(2, "queue.declare", queue=name + "x", passive=True))
    connection.expect_channel_close(2, 404)


def test_b15_crossing_channel_closes(connection: raw.Connection) -> None:
    """15 (section 1.5.2.5): a close that meets the other side's close is answered too."""
    connection.send(
        raw.method(1, "queue.declare", queue=unique(), passive=True),
        raw.method(1, "channel.close", code=200),
    )
    connection.expect(1, "channel.close")
    connection.expect(1, "channel.close-ok")
    connection.send(raw.method(1, "channel.close-ok"))
    connection.open_channel(1)
    connection.sync(1)


def test_closing_connection_ignores_what_follows(connection: raw.Connection, name: str) -> None:
    """After a hard error everything but close-ok is ignored (section 1.4.2.6)."""
    connection.send(
        raw.frame(4, 0, b""),  # 501
        raw.method(1, "queue.declare", queue=name),
        raw.publish(1, "", name, b"dropped"),
    )
    connection.expect_connection_close(501)


def test_second_close_is_ignored_too(connection: raw.Connection) -> None:
    """Crossing connection closes: close and close-ok of the peer end it (section 1.4.2.6)."""
    connection.send(raw.frame(4, 0, b""), raw.method(0, "connection.close", code=200))
    assert connection.expect(0, "connection.close").code == 501
    connection.expect(0, "connection.close-ok")


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (raw.method(1, "basic.qos-ok"), 503),
        (raw.method(0, "connection.start-ok", mechanism="PLAIN"), 504),
        (raw.method(0, "basic.qos"), 504),
        (raw.method(1, "connection.close"), 503),
    ],
    ids=["servers-method", "second-start-ok", "basic-on-0", "close-on-1"],
)
def test_methods_that_cannot_be_here(connection: raw.Connection, sent: bytes, code: int) -> None:
    """A method that is the other side's, of another state or of another channel."""
    connection.send(sent)
    connection.expect_connection_close(code)


@pytest.mark.parametrize("ids", [(99, 10), (60, 999), (0, 0)])
def test_unknown_methods(connection: raw.Connection, ids: tuple[int, int], broker: Broker) -> None:
    """What no table knows: 503 or 540 (RabbitMQ 3.10 only drops the socket)."""
    connection.send(raw.frame(raw.METHOD, 1, struct.pack(">HH", *ids)))
    if broker.is_rabbitmq:
        connection.expect_end()
        return
    code = connection.expect(0, "connection.close").code
    assert code in (503, 540)
    connection.send(raw.method(0, "connection.close-ok"))
    connection.expect_end()


@pytest.mark.parametrize(
    "arguments",
    [
        b"",
        b"\0\0\xc8short",
        b"\0\0\x01q\0" + struct.pack(">I", 4_000_000),
        b"\0\0\x00\0" + struct.pack(">I", 3) + b"\x01aZ",
        b"\0\0\x02\xff\xfe\0" + struct.pack(">I", 0),
        b"\0\0\x01q\0" + struct.pack(">I", 0) + b"left over",
    ],
    ids=["none", "string", "table", "table-tag", "not-utf8", "left-over"],
)
def test_broken_arguments(connection: raw.Connection, arguments: bytes, broker: Broker) -> None:
    """Truncated or wrongly encoded arguments end the connection with 501 or 502."""
    connection.send(raw.frame(raw.METHOD, 1, struct.pack(">HH", 50, 10) + arguments))
    if broker.is_rabbitmq and arguments.endswith(b"Z"):
        connection.expect_end()  # RabbitMQ 3.10 only drops the socket
        return
    got = connection.expect(0, "connection.close")
    assert got.code in (501, 502), got
    assert (got.class_id, got.method_id) in ((50, 10), (0, 0))
    connection.send(raw.method(0, "connection.close-ok"))
    connection.expect_end()
