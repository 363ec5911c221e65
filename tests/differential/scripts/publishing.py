"""Publishing: errors, returns, confirms, properties, CC and BCC."""

from __future__ import annotations

from typing import Any

from differential.script import script
from differential.stage import Stage
from support.wire import raw
from support.wire.raw import Typed


@script(17)
def immediate(s: Stage) -> None:
    a = s.channel()
    a.publish("", s.name("q"), "x", immediate=True)
    a.hear()


@script(17)
def immediate_with_a_consumer(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), auto_delete=True)
    a.consume(s.name("q"), no_ack=True)
    a.publish("", s.name("q"), "x", immediate=True)
    a.hear()


@script(18)
def exchange_missing(s: Stage) -> None:
    a = s.channel()
    a.publish(s.name("x"), "k", "x")
    a.hear()


@script(18)
def exchange_missing_drops_what_follows(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"))
    a.peer.send(
        raw.publish(1, "", s.name("q"), b"before"),
        raw.publish(1, s.name("x"), "k", b"missing"),
        raw.publish(1, "", s.name("q"), b"after"),
    )
    a.hear()
    a.drain(s.name("q"))
    a.call("queue.delete", queue=s.name("q"))


@script(18)
def exchange_missing_with_confirms(s: Stage) -> None:
    a = s.channel()
    a.confirm()
    a.publish(s.name("x"), "k", "x")
    a.hear()
    a.confirm()
    a.publish("", "nowhere", "x")
    a.confirmed()


@script(20)
def body_of_a_mebibyte(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.publish("", s.name("q"), b"x" * 1_048_576)
    a.get(s.name("q"))


@script(20)
def body_too_large(s: Stage) -> None:
    a = s.channel()
    a.ensure()
    size = 600 * 1024 * 1024
    a.peer.send(raw.method(1, "basic.publish", routing_key="x"), raw.header(1, size))
    a.sync()


@script(20)
def body_of_17_mib(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.confirm()
    a.publish("", s.name("q"), b"x" * (17 * 1024 * 1024))
    a.confirmed()


@script(21)
def expiration_forms(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    for value in ("60000", "+60000", "0060000"):
        a.publish("", s.name("q"), value, expiration=value)
        a.get(s.name("q"))


@script(21)
def expiration_invalid(s: Stage) -> None:
    a = s.channel()
    for value in ("abc", "-1", "1.5", "", " 5", "5 ", "+5", "0x5", "5000000000", "99999999999999"):
        a.publish("", s.name("q"), value, expiration=value)
        a.sync()


@script(21)
def expiration_of_what_has_no_queue(s: Stage) -> None:
    a = s.channel()
    a.publish("", "nowhere", "x", expiration="abc")
    a.hear()
    a.publish(s.name("x"), "nowhere", "x", expiration="abc")
    a.hear()


@script(22)
def user_id(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.publish("", s.name("q"), "mine", user_id="guest")
    a.drain(s.name("q"))
    a.publish("", s.name("q"), "not mine", user_id="other")
    a.hear()
    a.publish("", s.name("q"), "empty", user_id="")
    a.hear()


@script(23)
def cc_and_bcc(s: Stage) -> None:
    a = s.channel()
    for queue in "abcd":
        a.declare(s.name(queue), exclusive=True)
    headers = {"CC": [s.name("b"), s.name("a")], "BCC": [s.name("c")], "other": 1}
    a.publish("", s.name("a"), "x", headers=headers)
    a.publish("", s.name("missing"), "only copies", headers=headers, mandatory=True)
    a.publish("", s.name("missing"), "no copies", headers={"CC": [], "BCC": []}, mandatory=True)
    a.hear()
    for queue in "abcd":
        a.drain(s.name(queue))


@script(23)
def bcc_of_a_returned_message(s: Stage) -> None:
    a = s.channel()
    headers = {"CC": ["no"], "BCC": ["nor"]}
    a.publish("", s.name("q"), "x", headers=headers, mandatory=True)
    a.hear()


@script(23)
def cc_with_a_topic_exchange(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "topic", auto_delete=True)
    for key in ("a.#", "b.#"):
        a.declare(s.name(key), exclusive=True)
        a.bind(s.name(key), s.name("x"), key)
    a.publish(s.name("x"), "c", "x", headers={"CC": ["a.1", "a.2"], "BCC": ["b.1"]})
    for key in ("a.#", "b.#"):
        a.drain(s.name(key))


@script(23)
def cc_invalid(s: Stage) -> None:
    a = s.channel()
    values: tuple[Any, ...] = ("text", 5, [5], ["a", 5], [b"bytes"], {"a": "b"}, None, [["a"]])
    for name in ("CC", "BCC"):
        for value in values:
            a.publish("", s.name("q"), "x", headers={name: value})
            a.sync()


@script(24)
def mandatory(s: Stage) -> None:
    a = s.channel()
    a.publish("", s.name("q"), "x", mandatory=True, message_id="1", headers={"h": 1})
    a.hear()
    a.publish("amq.fanout", "key", "x", mandatory=True)
    a.hear()
    a.publish("", s.name("q"), "", mandatory=True)
    a.hear()


@script(24)
def mandatory_return_before_its_confirm(s: Stage) -> None:
    a = s.channel()
    a.confirm()
    a.publish("", s.name("q"), "x", mandatory=True)
    a.hear(2)


@script(24)
def mandatory_and_routed(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.confirm()
    a.publish("", s.name("q"), "x", mandatory=True)
    a.confirmed()
    a.drain(s.name("q"))


@script(25, 30)
def confirms_count(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), durable=True)
    a.publish("", s.name("q"), "before confirms")
    a.confirm()
    a.publish("", s.name("q"), "1", delivery_mode=2)
    a.publish("", s.name("nowhere"), "2")
    a.publish("", s.name("q"), "3")
    a.confirmed()
    a.confirm()
    a.published, a.verdicts = 3, {1: "", 2: "", 3: ""}
    a.publish("", s.name("q"), "4", delivery_mode=2)
    a.confirmed()
    a.call("queue.delete", queue=s.name("q"))


@script(26)
def rejected_by_one_queue(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "fanout", auto_delete=True)
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    a.declare(s.name("full"), exclusive=True, arguments=arguments)
    a.declare(s.name("q"), exclusive=True)
    for queue in ("full", "q"):
        a.bind(s.name(queue), s.name("x"))
    a.confirm()
    for body in "123":
        a.publish(s.name("x"), "", body)
        a.confirmed()
    for queue in ("full", "q"):
        a.drain(s.name(queue))


@script(27)
def queue_deleted_with_its_messages(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), durable=True)
    a.confirm()
    for body in "123":
        a.publish("", s.name("q"), body, delivery_mode=2)
    a.send("queue.delete", queue=s.name("q"), no_wait=True)
    a.confirmed()


@script(28)
def confirms_and_transactions(s: Stage) -> None:
    a = s.channel()
    a.confirm()
    a.confirm()
    a.call("tx.select")
    a.call("tx.select")
    a.confirm()
    a.call("tx.commit")
    a.call("tx.rollback")


@script(28)
def confirm_no_wait(s: Stage) -> None:
    a = s.channel()
    a.send("confirm.select", no_wait=True)
    a.confirming = True
    a.publish("", "nowhere", "1")
    a.confirmed()


#: Every property.
PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain", "content_encoding": "gzip", "delivery_mode": 2, "priority": 3,
    "correlation_id": "c", "reply_to": "r", "expiration": "60000", "message_id": "m",
    "timestamp": 1_000_000_000, "type": "t", "user_id": "guest", "app_id": "a",
    "cluster_id": "x", "headers": {"h": "v"},
}  # fmt: skip


@script()
def properties_round_trip(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.publish("", s.name("q"), "all", **PROPERTIES)
    for name, value in PROPERTIES.items():
        a.publish("", s.name("q"), name, **{name: value})
    a.publish("", s.name("q"), "none")
    a.publish("", s.name("q"), "empty headers", headers={})
    a.drain(s.name("q"))


@script()
def properties_at_their_edges(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    for mode in (0, 1, 2, 3, 255):
        a.publish("", s.name("q"), "mode", delivery_mode=mode)
    for priority in (0, 9, 10, 255):
        a.publish("", s.name("q"), "priority", priority=priority)
    for stamp in (0, 2**32, 2**63, 2**64 - 1):
        a.publish("", s.name("q"), "timestamp", timestamp=stamp)
    a.publish("", s.name("q"), "empty", content_type="", message_id="")
    a.publish("", s.name("q"), "long", content_type="x" * 255)
    a.drain(s.name("q"))


#: Header values of all types.
HEADERS: dict[str, Any] = {
    "t": True, "f": False, "b": Typed("b", -5), "B": Typed("B", 200), "s": Typed("s", -300),
    "u": Typed("u", 40_000), "I": Typed("I", -70_000), "i": Typed("i", 3_000_000_000),
    "l": Typed("l", -(2**62)), "L": Typed("L", 2**62), "float": Typed("f", 1.5), "d": 2.5,
    "D": Typed("D", (2, 314)), "S": "text", "x": b"\x00\xff",
    "A": [1, "two", None, [3.0], {"k": 4}],
    "T": Typed("T", 1_000_000_000), "F": {"n": {"m": [True]}}, "V": None, "ü": "ü", "S-bytes":
    Typed("S", b"\xe2\x82\xac"),
}  # fmt: skip


@script()
def headers_round_trip(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    for name, value in HEADERS.items():
        a.publish("", s.name("q"), name, headers={name: value})
    a.drain(s.name("q"))


@script(68, 72)
def headers_through_a_dead_letter(s: Stage) -> None:
    a = s.channel()
    dead, queue = s.name("dead"), s.name("q")
    a.declare(dead, exclusive=True)
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    a.declare(queue, exclusive=True, arguments=arguments)
    for count, (name, value) in enumerate(HEADERS.items()):
        a.publish("", queue, name, headers={name: value})
        a.reject(a.get(queue, no_ack=False).tag, requeue=False)
        a.count(dead, count + 1)
    a.drain(dead)


@script(23)
def headers_with_copies(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.publish("", s.name("q"), "all", headers=HEADERS | {"BCC": ["nowhere"]}, priority=1)
    a.drain(s.name("q"))


@script()
def headers_with_a_name_twice(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    pairs = b"\x01hS\x00\x00\x00\x011" + b"\x01hS\x00\x00\x00\x012"
    a.publish("", s.name("q"), "x", headers=pairs)
    a.drain(s.name("q"))


@script()
def headers_of_an_unknown_type(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.publish("", s.name("q"), "x", headers={"h": Typed("Z", None)})
    a.count(s.name("q"))
