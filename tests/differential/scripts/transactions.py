"""Transactions: what waits for the commit and what does not."""

from __future__ import annotations

from differential.script import script
from differential.stage import Stage


@script(28)
def without_select(s: Stage) -> None:
    a = s.channel()
    a.call("tx.commit")
    a.call("tx.rollback")


@script(29)
def commit(s: Stage) -> None:
    a, b = s.channel(), s.channel()
    a.declare(s.name("q"))
    a.call("tx.select")
    a.publish("", s.name("q"), "1")
    a.publish("", s.name("q"), "2")
    a.sync()
    b.count(s.name("q"))
    a.call("tx.commit")
    b.count(s.name("q"), 2)
    a.call("tx.commit")
    b.drain(s.name("q"))
    b.call("queue.delete", queue=s.name("q"))


@script(29)
def rollback(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.publish("", s.name("q"), "kept")
    a.call("tx.select")
    a.publish("", s.name("q"), "gone")
    a.get(s.name("q"), no_ack=False)
    a.ack(1)
    a.call("tx.rollback")
    a.count(s.name("q"))
    a.ack(1)
    a.call("tx.commit")
    a.call("basic.recover", requeue=True)
    a.count(s.name("q"))


@script(29)
def rollback_of_rejects(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    for body in "123":
        a.publish("", s.name("q"), body)
    a.call("tx.select")
    for _ in range(3):
        a.get(s.name("q"), no_ack=False)
    a.reject(2)
    a.count(s.name("q"))
    a.call("tx.rollback")
    a.count(s.name("q"))
    a.nack(3, multiple=True)
    a.call("tx.commit")
    a.count(s.name("q"), 3)
    a.drain(s.name("q"))


@script(29)
def returns_come_with_the_commit(s: Stage) -> None:
    a = s.channel()
    a.call("tx.select")
    a.publish("", s.name("q"), "1", mandatory=True)
    a.sync()
    a.rest()
    a.send("tx.commit")
    a.note(f"< {a.peer.next_on(1)}")
    a.note(f"< {a.peer.next_on(1)}")


@script(29)
def exchange_missing(s: Stage) -> None:
    a = s.channel()
    a.call("tx.select")
    a.publish(s.name("x"), "", "1")
    a.hear()


@script(29)
def ack_unknown(s: Stage) -> None:
    a = s.channel()
    a.call("tx.select")
    a.ack(5)
    a.hear()


@script(29)
def ack_twice(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.publish("", s.name("q"), "1")
    a.call("tx.select")
    a.get(s.name("q"), no_ack=False)
    a.ack(1)
    a.ack(1)
    a.hear()


@script(29)
def closed_before_the_commit(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.publish("", s.name("q"), "1")
    a.call("tx.select")
    a.publish("", s.name("q"), "2")
    a.get(s.name("q"), no_ack=False)
    a.ack(1)
    a.close()
    a.count(s.name("q"), 1)
    a.drain(s.name("q"))


@script(29)
def acks_and_publishes_together(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("in"), exclusive=True)
    a.declare(s.name("out"), exclusive=True)
    a.publish("", s.name("in"), "1")
    a.publish("", s.name("in"), "2")
    a.call("tx.select")
    a.get(s.name("in"), no_ack=False)
    a.get(s.name("in"), no_ack=False)
    a.publish("", s.name("out"), "a")
    a.ack(2, multiple=True)
    a.call("tx.commit")
    a.count(s.name("in"))
    a.drain(s.name("out"))


@script(29)
def prefetch_waits_for_the_commit(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    for body in "12":
        a.publish("", s.name("q"), body)
    a.call("tx.select")
    a.qos(1)
    a.consume(s.name("q"), "t")
    a.delivered()
    a.ack(1)
    a.count(s.name("q"), 1)
    a.rest()
    a.call("tx.commit")
    a.delivered()


@script(26, 29)
def rejected_by_a_full_queue(s: Stage) -> None:
    a = s.channel()
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    a.declare(s.name("q"), exclusive=True, arguments=arguments)
    a.call("tx.select")
    a.publish("", s.name("q"), "1")
    a.call("tx.commit")
    a.publish("", s.name("q"), "2")
    a.call("tx.commit")
    a.drain(s.name("q"))


@script(29)
def publish_to_a_deleted_queue(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"))
    a.call("tx.select")
    a.publish("", s.name("q"), "1", mandatory=True)
    a.call("queue.delete", queue=s.name("q"))
    a.call("tx.commit")
    a.rest()


@script(29)
def ack_several_in_a_transaction(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    for body in "1234":
        a.publish("", s.name("q"), body)
    a.call("tx.select")
    for _ in range(4):
        a.get(s.name("q"), no_ack=False)
    a.ack(2)
    a.ack(3, multiple=True)
    a.call("tx.commit")
    a.nack(0, multiple=True)
    a.call("tx.commit")
    a.count(s.name("q"), 1)
    a.drain(s.name("q"))


@script(28, 29)
def confirms_are_refused_and_the_transaction_is_gone(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.call("tx.select")
    a.publish("", s.name("q"), "1")
    a.confirm()
    a.count(s.name("q"))
    a.call("tx.commit")


@script(29)
def as_many_publishes_as_may_be(s: Stage) -> None:
    a, b = s.channel(), s.channel()
    a.declare(s.name("q"))
    a.call("tx.select")
    a.publish_many(10_000, "", s.name("q"), "1")
    a.call("tx.commit")
    b.count(s.name("q"), 10_000)
    b.call("queue.delete", queue=s.name("q"))


@script(29)
def one_publish_too_many(s: Stage) -> None:
    a, b = s.channel(), s.channel()
    a.declare(s.name("q"))
    a.call("tx.select")
    a.publish_many(10_001, "", s.name("q"), "1")
    a.sync()
    a.call("tx.commit")
    b.count(s.name("q"))
    b.call("queue.delete", queue=s.name("q"))
