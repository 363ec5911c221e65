"""Dead letters: why, where to, with which headers; TTL, length limits and priorities."""

from __future__ import annotations

from typing import Any

from differential.script import script
from differential.stage import Channel, Stage
from support.wire.raw import Typed


def dead_letter(s: Stage, a: Channel, **arguments: Any) -> tuple[str, str]:
    """A queue and the queue of its dead letters, by the default exchange."""
    dead, queue = s.name("dead"), s.name("q")
    a.declare(dead, exclusive=True)
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    named = {name.replace("_", "-"): value for name, value in arguments.items()}
    a.declare(queue, exclusive=True, arguments=to_dead | named)
    return queue, dead


@script(68)
def rejected(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a)
    a.publish("", queue, "x", headers={"h": 1}, message_id="m", delivery_mode=2)
    a.reject(a.get(queue, no_ack=False).tag, requeue=False)
    a.count(dead, 1)
    a.get(dead)


@script(68)
def nacked_together(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a)
    for body in "123":
        a.publish("", queue, body)
        a.get(queue, no_ack=False)
    a.nack(0, multiple=True, requeue=False)
    a.count(dead, 3)
    a.drain(dead)


@script(66, 68)
def expired_by_its_queue(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a, x_message_ttl=50)
    a.consume(dead, no_ack=True)
    a.publish("", queue, "1")
    a.publish("", queue, "2", expiration="60000")
    a.delivered(2)


@script(66, 68)
def expired_by_itself(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a, x_message_ttl=60_000)
    a.consume(dead, no_ack=True)
    a.publish("", queue, "1", expiration="50", headers={"h": "v"}, priority=1)
    a.publish("", queue, "2", expiration="0")
    a.delivered(2)


@script(66)
def expired_at_once_but_for_a_consumer(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a, x_message_ttl=0)
    a.publish("", queue, "nobody waits")
    a.count(dead, 1)
    a.get(dead)
    a.consume(queue, no_ack=True)
    a.publish("", queue, "somebody waits")
    a.delivered()


@script(66)
def expired_behind_one_that_is_not(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a)
    a.consume(dead, no_ack=True)
    a.publish("", queue, "long", expiration="1000")
    a.publish("", queue, "short", expiration="50")
    a.delivered(2)


@script(66)
def not_expired_while_unacked(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a, x_message_ttl=100)
    a.consume(dead, no_ack=True)
    a.publish("", queue, "1")
    a.get(queue, no_ack=False)
    a.publish("", queue, "2")
    a.delivered()
    a.count(queue)
    a.reject(1)
    a.delivered()


@script(67, 68)
def too_many(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a, x_max_length=2)
    for body in "1234":
        a.publish("", queue, body)
    a.count(dead, 2)
    a.drain(dead)
    a.drain(queue)


@script(67)
def too_many_bytes(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a, x_max_length_bytes=10)
    for body in ("12345", "67890", "abc", "longer than all of it"):
        a.publish("", queue, body)
    a.count(dead, 4)
    a.drain(dead)
    a.drain(queue)


@script(67)
def length_counts_ready_only(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a, x_max_length=1)
    a.publish("", queue, "1")
    a.get(queue, no_ack=False)
    a.publish("", queue, "2")
    a.get(queue, no_ack=False)
    a.nack(0, multiple=True)
    a.count(dead, 1)
    a.drain(dead)
    a.drain(queue)


@script(67)
def length_of_none(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a, x_max_length=0)
    a.publish("", queue, "nobody waits")
    a.count(dead, 1)
    a.consume(queue, no_ack=True)
    a.publish("", queue, "somebody waits")
    a.delivered()


@script(26, 67)
def reject_publish(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a, x_max_length=1, x_overflow="reject-publish")
    a.confirm()
    for body in "123":
        a.publish("", queue, body)
        a.confirmed()
    a.count(dead)
    a.drain(queue)


@script(26, 67)
def reject_publish_to_dead_letters(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a, x_max_length=1, x_overflow="reject-publish-dlx")
    a.confirm()
    for body in "123":
        a.publish("", queue, body)
        a.confirmed()
    a.count(dead, 2)
    a.drain(dead)
    a.drain(queue)


@script(26, 67)
def reject_publish_without_confirms(s: Stage) -> None:
    a = s.channel()
    queue, _ = dead_letter(s, a, x_max_length=1, x_overflow="reject-publish")
    for body in "123":
        a.publish("", queue, body, mandatory=True)
    a.drain(queue)
    a.rest()


@script(68)
def twice_from_one_queue(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a)
    a.publish("", queue, "x", headers={"h": 1})
    a.reject(a.get(queue, no_ack=False).tag, requeue=False)
    a.count(dead, 1)
    headers = a.get(dead).properties["headers"].value
    a.publish("", queue, "x", headers=headers)
    a.reject(a.get(queue, no_ack=False).tag, requeue=False)
    a.count(dead, 1)
    a.get(dead)


@script(68)
def through_two_queues(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "fanout", auto_delete=True)
    a.declare(s.name("3"), exclusive=True)
    a.declare(s.name("2"), exclusive=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": s.name("3"),
    })  # fmt: skip
    a.bind(s.name("2"), s.name("x"))
    arguments = {"x-dead-letter-exchange": s.name("x"), "x-message-ttl": 20}
    a.declare(s.name("1"), exclusive=True, arguments=arguments)
    a.publish("", s.name("1"), "x")
    a.count(s.name("2"), 1)
    a.reject(a.get(s.name("2"), no_ack=False).tag, requeue=False)
    a.count(s.name("3"), 1)
    a.get(s.name("3"))


@script(68)
def headers_of_the_last_death(s: Stage) -> None:
    a = s.channel()
    s.extras = True
    queue, dead = dead_letter(s, a)
    a.publish("", queue, "x")
    a.reject(a.get(queue, no_ack=False).tag, requeue=False)
    a.count(dead, 1)
    a.get(dead)


@script(68)
def retry_loop(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("work"), exclusive=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": s.name("wait"),
    })  # fmt: skip
    a.declare(s.name("wait"), exclusive=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": s.name("work"),
        "x-message-ttl": 20,
    })  # fmt: skip
    a.consume(s.name("work"))
    a.publish("", s.name("work"), "x", headers={"h": 1})
    for _ in range(4):
        (got,) = a.delivered()
        a.reject(got.tag, requeue=False)


@script(69)
def circle_without_a_reject(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("1"), exclusive=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": s.name("2"),
        "x-message-ttl": 20,
    })  # fmt: skip
    a.declare(s.name("2"), exclusive=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": s.name("1"),
        "x-message-ttl": 20,
    })  # fmt: skip
    a.declare(s.name("3"), exclusive=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": s.name("out"),
        "x-message-ttl": 300,
    })  # fmt: skip
    a.declare(s.name("out"), exclusive=True)
    a.consume(s.name("out"), no_ack=True)
    a.publish("", s.name("1"), "round")
    a.publish("", s.name("3"), "the clock")
    a.delivered()
    a.count(s.name("1"))
    a.count(s.name("2"))


@script(69)
def circle_of_one_queue(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True, arguments={
        "x-dead-letter-exchange": "", "x-max-length": 1,
    })  # fmt: skip
    a.publish("", s.name("q"), "1")
    a.publish("", s.name("q"), "2")
    a.count(s.name("q"), 1)
    a.drain(s.name("q"))


@script(69)
def circle_by_rejects(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True, arguments={"x-dead-letter-exchange": ""})
    a.consume(s.name("q"))
    a.publish("", s.name("q"), "x")
    for _ in range(3):
        (got,) = a.delivered()
        a.reject(got.tag, requeue=False)


@script(70)
def exchange_missing(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue, exclusive=True, arguments={"x-dead-letter-exchange": s.name("missing")})
    a.publish("", queue, "x")
    a.reject(a.get(queue, no_ack=False).tag, requeue=False)
    a.sync()
    a.count(queue)


@script(70)
def key_and_copies(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "direct", auto_delete=True)
    a.declare(s.name("dead"), exclusive=True)
    for key in ("cc", "bcc", "own", s.name("plain"), s.name("keyed")):
        a.bind(s.name("dead"), s.name("x"), key)
    a.declare(s.name("plain"), exclusive=True, arguments={
        "x-dead-letter-exchange": s.name("x"),
    })  # fmt: skip
    a.declare(s.name("keyed"), exclusive=True, arguments={
        "x-dead-letter-exchange": s.name("x"), "x-dead-letter-routing-key": "own",
    })  # fmt: skip
    for count, queue in enumerate((s.name("plain"), s.name("keyed"))):
        a.publish("", queue, "x", headers={"CC": ["cc"], "BCC": ["bcc"]})
        a.reject(a.get(queue, no_ack=False).tag, requeue=False)
        a.count(s.name("dead"), 1)
        a.drain(s.name("dead"))
        s.note(str(count))


@script(70)
def key_without_exchange(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), arguments={"x-dead-letter-routing-key": "k"})


@script(71)
def x_death_of_a_publisher(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a)
    mine = {"count": Typed("l", 7), "reason": "expired", "queue": queue, "exchange": "", "time":
            Typed("T", 1000), "routing-keys": [queue]}  # fmt: skip
    deaths: tuple[Any, ...] = ([mine], "text", [])
    for death in deaths:
        a.publish("", queue, "x", headers={"x-death": death})
        a.reject(a.get(queue, no_ack=False).tag, requeue=False)
        a.count(dead, 1)
        a.drain(dead)


@script(72)
def exchange_and_key_of_the_original(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("in"), "topic", auto_delete=True)
    a.exchange(s.name("out"), "topic", auto_delete=True)
    a.declare(s.name("q"), exclusive=True, arguments={"x-dead-letter-exchange": s.name("out")})
    a.declare(s.name("dead"), exclusive=True)
    a.bind(s.name("q"), s.name("in"), "a.#")
    a.bind(s.name("dead"), s.name("out"), "a.b")
    a.publish(s.name("in"), "a.b", "x", headers={"h": {"n": [1]}}, expiration="60000")
    a.reject(a.get(s.name("q"), no_ack=False).tag, requeue=False)
    a.count(s.name("dead"), 1)
    a.get(s.name("dead"))


@script(72)
def in_a_transaction(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a)
    a.publish("", queue, "x")
    a.call("tx.select")
    a.reject(a.get(queue, no_ack=False).tag, requeue=False)
    a.sync()
    a.count(dead)
    a.call("tx.commit")
    a.count(dead, 1)


@script(47)
def not_by_purge_or_delete(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a)
    a.publish("", queue, "1")
    a.call("queue.purge", queue=queue)
    a.publish("", queue, "2")
    a.call("queue.delete", queue=queue)
    a.count(dead)


@script(46)
def exchange_argument_again(s: Stage) -> None:
    a = s.channel()
    dead_letter(s, a)
    a.declare(s.name("q"), exclusive=True, arguments={
        "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "other",
    })  # fmt: skip


@script(67)
def priorities(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue, exclusive=True, arguments={"x-max-priority": 5})
    for body, priority in (("0", 0), ("3", 3), ("5", 5), ("9", 9), ("3 again", 3), ("1", 1)):
        a.publish("", queue, body, priority=priority)
    a.publish("", queue, "none")
    a.drain(queue)


@script(59, 67)
def priorities_and_requeue(s: Stage) -> None:
    a = s.channel()
    queue = s.name("q")
    a.declare(queue, exclusive=True, arguments={"x-max-priority": 5})
    for body, priority in (("a1", 1), ("b1", 1), ("a2", 2), ("b2", 2)):
        a.publish("", queue, body, priority=priority)
    for _ in range(3):
        a.get(queue, no_ack=False)
    a.nack(0, multiple=True)
    a.count(queue, 4)
    a.drain(queue)


@script(67)
def priorities_and_length(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a, x_max_priority=5, x_max_length=2)
    for body, priority in (("5", 5), ("1", 1), ("3", 3), ("2", 2)):
        a.publish("", queue, body, priority=priority)
    a.count(dead, 2)
    a.drain(dead)
    a.drain(queue)


@script(66, 67)
def priorities_and_expiry(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a, x_max_priority=5)
    a.consume(dead, no_ack=True)
    a.publish("", queue, "low", priority=1, expiration="50")
    a.publish("", queue, "high", priority=5, expiration="400")
    a.delivered(2)


@script(67)
def reject_publish_by_bytes(s: Stage) -> None:
    a = s.channel()
    arguments = {"x-max-length-bytes": 10, "x-overflow": "reject-publish"}
    a.declare(s.name("q"), exclusive=True, arguments=arguments)
    a.confirm()
    for body in ("12345678", "9012", "34", "5"):
        a.publish("", s.name("q"), body)
        a.confirmed()
    a.drain(s.name("q"))


@script(67)
def reject_publish_of_none(s: Stage) -> None:
    a = s.channel()
    arguments = {"x-max-length": 0, "x-overflow": "reject-publish"}
    a.declare(s.name("q"), exclusive=True, arguments=arguments)
    a.confirm()
    a.publish("", s.name("q"), "1")
    a.confirmed()


@script(67)
def length_and_bytes(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a, x_max_length=3, x_max_length_bytes=10)
    for body in ("1", "2", "3", "4", "12345678"):
        a.publish("", queue, body)
    a.count(dead, 3)
    a.drain(dead)
    a.drain(queue)


@script(67, 59)
def length_and_a_slow_consumer(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a, x_max_length=1)
    a.qos(1)
    a.consume(queue)
    for body in "1234":
        a.publish("", queue, body)
    a.delivered()
    a.count(dead, 2)
    a.drain(dead)
    a.ack(1)
    a.delivered()


@script(68)
def from_three_queues(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("end"), exclusive=True)
    following = s.name("end")
    for name, extra in (("3", {"x-max-length": 0}), ("2", {"x-message-ttl": 20}), ("1", {})):
        arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": following}
        a.declare(s.name(name), exclusive=True, arguments=arguments | extra)
        following = s.name(name)
    a.publish("", s.name("1"), "x", headers={"h": 1})
    a.reject(a.get(s.name("1"), no_ack=False).tag, requeue=False)
    a.count(s.name("end"), 1)
    a.get(s.name("end"))


@script(68)
def expired_and_rejected_in_turn(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a, x_message_ttl=60_000)
    a.publish("", queue, "rejected", expiration="50000")
    a.reject(a.get(queue, no_ack=False).tag, requeue=False)
    a.publish("", queue, "expired", expiration="1")
    a.count(dead, 2)
    a.drain(dead)


@script(70)
def exchange_without_a_queue(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "fanout", auto_delete=True)
    a.declare(s.name("q"), exclusive=True, arguments={"x-dead-letter-exchange": s.name("x")})
    a.publish("", s.name("q"), "x")
    a.reject(a.get(s.name("q"), no_ack=False).tag, requeue=False)
    a.count(s.name("q"))


@script(70)
def exchange_with_an_alternate(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("other"), "fanout")
    a.exchange(s.name("x"), "direct", arguments={"alternate-exchange": s.name("other")})
    a.declare(s.name("dead"), exclusive=True)
    a.bind(s.name("dead"), s.name("other"))
    a.declare(s.name("q"), exclusive=True, arguments={"x-dead-letter-exchange": s.name("x")})
    a.publish("", s.name("q"), "x")
    a.reject(a.get(s.name("q"), no_ack=False).tag, requeue=False)
    a.count(s.name("dead"), 1)
    a.drain(s.name("dead"))
    a.call("exchange.delete", exchange=s.name("x"))
    a.call("exchange.delete", exchange=s.name("other"))


@script(70)
def headers_exchange(s: Stage) -> None:
    a = s.channel()
    a.exchange(s.name("x"), "headers", auto_delete=True)
    for reason in ("rejected", "expired"):
        a.declare(s.name(reason), exclusive=True)
        arguments = {"x-match": "all-with-x", "x-first-death-reason": reason}
        a.bind(s.name(reason), s.name("x"), arguments=arguments)
    a.declare(s.name("q"), exclusive=True, arguments={"x-dead-letter-exchange": s.name("x")})
    a.publish("", s.name("q"), "1")
    a.reject(a.get(s.name("q"), no_ack=False).tag, requeue=False)
    a.count(s.name("rejected"), 1)
    a.publish("", s.name("q"), "2", expiration="1")
    a.count(s.name("expired"), 1)
    for reason in ("rejected", "expired"):
        a.drain(s.name(reason))


@script(66)
def expiry_of_what_was_requeued(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a)
    a.publish("", queue, "1", expiration="200")
    got = a.get(queue, no_ack=False)
    a.reject(got.tag)
    a.count(dead, 1)
    a.get(dead)


@script(54, 69)
def consumer_of_a_deleted_dead_letter_queue(s: Stage) -> None:
    a = s.channel()
    queue, dead = dead_letter(s, a)
    a.consume(dead, "dead")
    a.call("queue.delete", queue=dead)
    a.hear()
    a.publish("", queue, "x")
    a.reject(a.get(queue, no_ack=False).tag, requeue=False)
    a.count(queue)
