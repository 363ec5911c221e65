"""Opening and closing channels, and what a channel forgets."""

from __future__ import annotations

from differential.script import script
from differential.stage import Stage
from support.wire import raw


@script(11)
def open_twice(s: Stage) -> None:
    peer = s.peer()
    peer.channel(1)
    peer.send(raw.method(1, "channel.open"))
    peer.hear()


@script(11)
def not_open(s: Stage) -> None:
    peer = s.peer()
    peer.send(raw.method(1, "basic.qos"))
    peer.hear()


@script(11)
def content_on_a_channel_not_open(s: Stage) -> None:
    peer = s.peer()
    peer.send(raw.publish(3, "", "x", b"abc"))
    peer.hear()


@script(11)
def closed_and_used(s: Stage) -> None:
    peer = s.peer()
    peer.channel(1).close()
    peer.send(raw.method(1, "basic.qos"))
    peer.hear()


@script(11)
def close_of_one_not_open(s: Stage) -> None:
    peer = s.peer()
    peer.send(raw.method(1, "channel.close", code=200, text="bye"))
    peer.hear(1)


@script(12)
def high_number(s: Stage) -> None:
    peer = s.peer()
    a = peer.channel(65535)
    a.declare(auto_delete=True)


@script(12)
def one_too_many(s: Stage) -> None:
    peer = s.peer(raw.Login(channel_max=3))
    for number in (1, 2, 3):
        peer.channel(number).sync()
    peer.channels[2].close()
    peer.channel(9).sync()
    peer.send(raw.method(10, "channel.open"))
    peer.hear(10)


@script(15)
def frames_dropped_until_close_ok(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue, auto_delete=True)
    a.peer.send(
        raw.method(1, "queue.declare", queue=s.name("missing"), passive=True),
        raw.publish(1, "", queue, b"dropped"),
        raw.method(1, "queue.declare", queue=s.name("other"), auto_delete=True),
        raw.method(1, "basic.qos"),
    )
    a.answer()
    a.count(queue)
    a.count(s.name("other"))


@script(15)
def number_reused_after_close_ok(s: Stage) -> None:
    a = s.channel()
    for _ in range(3):
        a.count(s.name("missing"))
    a.close()
    a.declare(auto_delete=True)


@script(15)
def closes_cross(s: Stage) -> None:
    a = s.channel()
    a.peer.send(
        raw.method(1, "queue.declare", queue=s.name("missing"), passive=True),
        raw.method(1, "channel.close", code=200, text="bye"),
    )
    a.note(f"< {a.peer.next_on(1)}")
    a.note(f"< {a.peer.next_on(1)}")
    a.peer.send(raw.method(1, "channel.close-ok"))
    a.is_open = False
    a.declare(auto_delete=True)


@script(11)
def flow(s: Stage) -> None:
    a = s.channel()
    a.call("channel.flow", active=True)
    a.call("channel.flow", active=False)


@script(11)
def close_ok_unasked(s: Stage) -> None:
    peer = s.peer()
    a = peer.channel(1)
    a.peer.send(raw.method(1, "channel.close-ok"))
    peer.send(raw.method(1, "basic.qos"))
    # Whether RabbitMQ complains of this method or of the one before is chance.
    a.note(f"< {peer.next_on(1).name}")


@script(59)
def close_requeues(s: Stage) -> None:
    peer = s.peer()
    a, b = peer.channel(1), peer.channel(2)
    queue = s.name("q")
    b.declare(queue, exclusive=True)
    for body in "123":
        b.publish("", queue, body)
    b.count(queue, 3)
    a.get(queue, no_ack=False)
    a.get(queue, no_ack=False)
    b.count(queue, 1)
    a.close()
    b.count(queue, 3)
    b.drain(queue)


@script(42)
def last_declared_queue(s: Stage) -> None:
    a = s.channel()
    a.call("queue.purge")
    a.declare(s.name("q"), auto_delete=True)
    a.declare(auto_delete=True)
    a.count(s.name("q"))
    a.publish("", s.name("q"), "x")
    a.get("")
    a.call("queue.purge")
    a.consume("")
    a.cancel()
    a.count(s.name("q"))


@script(42)
def no_last_declared_queue(s: Stage) -> None:
    a = s.channel()
    a.get("")
    a.consume("")
    a.bind("", "amq.fanout", "")
    a.bind("", "amq.fanout", "key")
    a.call("queue.unbind", exchange="amq.fanout")
    a.call("queue.delete")
    a.declare("", passive=True)


@script(42)
def bind_of_the_last_declared_queue(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.bind("", "amq.direct", "")
    a.publish("amq.direct", s.name("q"), "by the queue's name")
    a.publish("amq.direct", "", "by no key")
    a.drain(s.name("q"))
    a.bind(s.name("q"), "amq.direct", "")
    a.publish("amq.direct", "", "by no key")
    a.drain(s.name("q"))
