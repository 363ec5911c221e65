"""Opening, tuning and closing connections; frames that are wrong."""

from __future__ import annotations

from differential.script import script
from differential.stage import Peer, Stage
from support.wire import raw


def started(s: Stage, login: raw.Login) -> Peer:
    """A connection whose start-ok is sent."""
    peer = s.dial()
    peer.raw().start(login)
    return peer


def tuned(s: Stage, login: raw.Login) -> Peer:
    """A connection whose tune-ok is sent."""
    peer = started(s, login)
    peer.raw().tune_ok(login)
    return peer


def opened(s: Stage, login: raw.Login) -> None:
    """Tune and open, and write down what comes of it."""
    peer = tuned(s, login)
    peer.send(raw.method(0, "connection.open", vhost=login.vhost))
    peer.hear()


@script(1)
def header_of_another_protocol(s: Stage) -> None:
    for header in (b"SSH-2.0-", b"AMQP\x00\x00\x09\x02"):
        peer = s.dial()
        peer.send(header)
        s.note(repr(peer.raw().take(8)))
        peer.end()


@script(1)
def header_of_http(s: Stage) -> None:
    peer = s.dial()
    peer.send(b"GET / HT")
    s.note(repr(peer.raw().take(8)))
    peer.end()


@script(1)
def header_of_amqp_1_0(s: Stage) -> None:
    for header in (b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00"):
        peer = s.dial()
        peer.send(header)
        s.note(repr(peer.raw().take(8)))


@script(1)
def header_of_amqp_0_8(s: Stage) -> None:
    peer = s.dial()
    peer.send(b"AMQP\x01\x01\x08\x00")
    s.note(repr(peer.raw().take(5)))


@script(2)
def mechanism_unknown(s: Stage) -> None:
    started(s, raw.Login(mechanism="MAGIC")).hear()


@script(2)
def plain_malformed(s: Stage) -> None:
    started(s, raw.Login(response=b"guest")).hear()


@script(2)
def plain_with_an_identity(s: Stage) -> None:
    started(s, raw.Login(response=b"other\0guest\0guest")).hear()


@script(2)
def amqplain(s: Stage) -> None:
    response = raw.table({"LOGIN": "guest", "PASSWORD": "guest"})[4:]
    opened(s, raw.Login(mechanism="AMQPLAIN", response=response))


@script(2)
def amqplain_without_password(s: Stage) -> None:
    response = raw.table({"LOGIN": "guest"})[4:]
    started(s, raw.Login(mechanism="AMQPLAIN", response=response)).hear()


@script(3)
def password_wrong(s: Stage) -> None:
    started(s, raw.Login(password="wrong")).hear()


@script(3)
def user_unknown(s: Stage) -> None:
    started(s, raw.Login(user="nobody")).hear()


@script(3)
def password_wrong_told_to_nobody(s: Stage) -> None:
    started(s, raw.Login(password="wrong", capabilities={})).hear()


@script(5)
def tune_offer(s: Stage) -> None:
    started(s, raw.Login()).hear()


@script(5)
def tune_frame_max_small(s: Stage) -> None:
    opened(s, raw.Login(frame_max=4095))


@script(5)
def tune_frame_max_least(s: Stage) -> None:
    opened(s, raw.Login(frame_max=4096))


@script(5)
def tune_frame_max_large(s: Stage) -> None:
    opened(s, raw.Login(frame_max=131_073))


@script(5)
def tune_frame_max_unlimited(s: Stage) -> None:
    opened(s, raw.Login(frame_max=0))


@script(5)
def tune_channel_max_large(s: Stage) -> None:
    opened(s, raw.Login(channel_max=2048))


@script(5)
def tune_channel_max_unlimited(s: Stage) -> None:
    opened(s, raw.Login(channel_max=0))


@script(5)
def tune_channel_max_one(s: Stage) -> None:
    peer = s.peer(raw.Login(channel_max=1))
    peer.channel(1)
    peer.send(raw.method(2, "channel.open"))
    peer.hear(2)


@script(6)
def vhost_missing(s: Stage) -> None:
    opened(s, raw.Login(vhost="missing"))


@script(6)
def vhost_empty(s: Stage) -> None:
    opened(s, raw.Login(vhost=""))


@script()
def server_properties(s: Stage) -> None:
    properties = s.peer().raw().server_properties
    s.note(", ".join(sorted(properties)))
    s.note(", ".join(f"{k}={v}" for k, v in sorted(properties["capabilities"].items())))
    s.note(str(properties["product"]))


@script()
def mechanisms_and_locales(s: Stage) -> None:
    peer = s.dial()
    peer.send(raw.PROTOCOL_HEADER)
    heard = peer.next_on(0)
    s.note(f"{sorted(heard.fields['mechanisms'].split())} {heard.fields['locales']!r}")


@script(7)
def frame_larger_than_agreed(s: Stage) -> None:
    peer = s.peer(raw.Login(frame_max=8192))
    peer.channel(1)
    peer.send(raw.frame(raw.METHOD, 1, b"x" * 8193))
    peer.hear()


@script(7)
def frame_as_large_as_agreed(s: Stage) -> None:
    a = s.peer(raw.Login(frame_max=8192)).channel(1)
    a.declare(s.name("q"), auto_delete=True)
    a.peer.send(
        raw.method(1, "basic.publish", routing_key=s.name("q")),
        raw.content(1, b"x" * 16_368, piece=8184),
    )
    a.get(s.name("q"))


@script(7)
def frame_end_wrong(s: Stage) -> None:
    peer = s.peer()
    peer.channel(1)
    peer.send(raw.frame(raw.METHOD, 1, b"\x00\x3c\x00\x0a\0\0\0\0\0\0\0", end=b"\x00"))
    peer.hear()


@script(7)
def frame_type_unknown(s: Stage) -> None:
    peer = s.peer()
    peer.channel(1)
    peer.send(raw.frame(7, 1, b"abc"))
    peer.hear()


@script(7)
def method_unknown(s: Stage) -> None:
    peer = s.peer()
    peer.channel(1)
    peer.send(raw.frame(raw.METHOD, 1, b"\x00\x3c\x03\xe7"))
    peer.hear()


@script(7)
def method_too_short(s: Stage) -> None:
    peer = s.peer()
    peer.channel(1)
    peer.send(raw.frame(raw.METHOD, 1, b"\x00\x32\x00\x0a\0\0"))
    peer.hear()


@script(7)
def method_of_a_server(s: Stage) -> None:
    a = s.channel()
    a.call("basic.consume-ok", consumer_tag="c")


@script(7)
def name_not_utf8(s: Stage) -> None:
    a = s.channel()
    a.declare(b"\xff\xfe")  # type: ignore[arg-type] # what no client may send


@script(8)
def heartbeat_on_a_channel(s: Stage) -> None:
    peer = s.peer()
    peer.channel(1)
    peer.send(raw.frame(raw.HEARTBEAT, 1, b""))
    peer.hear()


@script(8)
def heartbeat_with_a_payload(s: Stage) -> None:
    peer = s.peer()
    peer.channel(1)
    peer.send(raw.frame(raw.HEARTBEAT, 0, b"x"))
    peer.channels[1].sync()
    peer.channels[1].declare(auto_delete=True)


@script(9)
def content_without_a_method(s: Stage) -> None:
    peer = s.peer()
    peer.channel(1)
    peer.send(raw.header(1, 3))
    peer.hear()


@script(9)
def body_without_a_method(s: Stage) -> None:
    peer = s.peer()
    peer.channel(1)
    peer.send(raw.frame(raw.BODY, 1, b"abc"))
    peer.hear()


@script(9)
def method_inside_content(s: Stage) -> None:
    peer = s.peer()
    peer.channel(1)
    peer.send(raw.method(1, "basic.publish", routing_key="x"), raw.method(1, "basic.qos"))
    peer.hear()


@script(9)
def method_inside_body(s: Stage) -> None:
    peer = s.peer()
    peer.channel(1)
    publish = raw.method(1, "basic.publish", routing_key="x")
    peer.send(publish, raw.header(1, 3), raw.method(1, "basic.qos"))
    peer.hear()


@script(9)
def header_of_another_class(s: Stage) -> None:
    peer = s.peer()
    peer.channel(1)
    publish = raw.method(1, "basic.publish", routing_key="x")
    peer.send(publish, raw.header(1, 3, class_id=50))
    peer.hear()


@script(9)
def header_twice(s: Stage) -> None:
    peer = s.peer()
    peer.channel(1)
    peer.send(raw.method(1, "basic.publish", routing_key="x"), raw.header(1, 3), raw.header(1, 3))
    peer.hear()


@script(9)
def body_longer_than_said(s: Stage) -> None:
    a = s.channel()
    publish = raw.method(1, "basic.publish", routing_key="x")
    a.peer.send(publish, raw.header(1, 3), raw.frame(raw.BODY, 1, b"abcd"))
    a.declare(auto_delete=True)


@script(9)
def content_of_two_channels_mixed(s: Stage) -> None:
    peer = s.peer()
    one, two = peer.channel(1), peer.channel(2)
    queue = s.name("q")
    one.declare(queue, auto_delete=True)
    peer.send(
        raw.method(1, "basic.publish", routing_key=queue),
        raw.method(2, "basic.publish", routing_key=queue),
        raw.header(1, 3),
        raw.header(2, 3),
        raw.frame(raw.BODY, 1, b"on"),
        raw.frame(raw.BODY, 2, b"two"),
    )
    two.get(queue)
    peer.send(raw.frame(raw.BODY, 1, b"e"))
    one.get(queue)


@script(10)
def body_empty(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), auto_delete=True)
    a.publish("", s.name("q"), b"")
    a.get(s.name("q"))


@script(10)
def body_in_empty_frames(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), auto_delete=True)
    a.peer.send(
        raw.method(1, "basic.publish", routing_key=s.name("q")),
        raw.header(1, 3),
        raw.frame(raw.BODY, 1, b""),
        raw.frame(raw.BODY, 1, b"abc"),
    )
    a.get(s.name("q"))


@script(13)
def close_deletes_exclusive_queues(s: Stage) -> None:
    a, b = s.channel(), s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.peer.close()
    b.count(s.name("q"))


@script(13)
def method_after_close(s: Stage) -> None:
    a = s.channel()
    a.peer.send(
        raw.method(0, "connection.close", code=200, text="bye"),
        raw.method(1, "queue.declare", queue=s.name("q")),
    )
    a.peer.hear()
    a.peer.drop()
    b = s.channel()
    b.count(s.name("q"))


@script()
def open_twice(s: Stage) -> None:
    peer = s.peer()
    peer.send(raw.method(0, "connection.open", vhost="/"))
    peer.hear()


@script()
def start_ok_twice(s: Stage) -> None:
    peer = s.peer()
    peer.send(raw.method(0, "connection.start-ok", mechanism="PLAIN", locale="en_US"))
    peer.hear()


@script()
def open_before_tune_ok(s: Stage) -> None:
    peer = started(s, raw.Login())
    peer.next_on(0)
    peer.send(raw.method(0, "connection.open", vhost="/"))
    peer.hear()


@script()
def channel_before_open(s: Stage) -> None:
    peer = tuned(s, raw.Login())
    peer.send(raw.method(1, "channel.open"))
    peer.hear()


@script()
def basic_on_channel_0(s: Stage) -> None:
    peer = s.peer()
    peer.send(raw.method(0, "basic.qos"))
    peer.hear()


@script()
def channel_open_on_channel_0(s: Stage) -> None:
    peer = s.peer()
    peer.send(raw.method(0, "channel.open"))
    peer.hear()


@script()
def connection_method_on_a_channel(s: Stage) -> None:
    peer = s.peer()
    peer.channel(1)
    peer.send(raw.method(1, "connection.open", vhost="/"))
    peer.hear()


@script()
def close_ok_unasked(s: Stage) -> None:
    a = s.channel()
    a.peer.send(raw.method(0, "connection.close-ok"))
    a.peer.hear()


@script(14)
def update_secret(s: Stage) -> None:
    a = s.channel()
    for secret in ("guest", "another", ""):
        a.peer.send(raw.method(0, "connection.update-secret", new_secret=secret, reason="x"))
        a.peer.hear()
    a.declare(auto_delete=True)
