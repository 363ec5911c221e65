"""Direct reply-to."""

from __future__ import annotations

from typing import Final

from differential.script import script
from differential.stage import Stage

REPLY_TO: Final = "amq.rabbitmq.reply-to"


@script(65)
def request_and_reply(s: Stage) -> None:
    a, b = s.channel(), s.channel()
    b.declare(s.name("q"), exclusive=True)
    b.consume(s.name("q"), no_ack=True)
    a.consume(REPLY_TO, "replies", no_ack=True)
    a.publish("", s.name("q"), "ask", reply_to=REPLY_TO, correlation_id="1")
    (asked,) = b.delivered()
    reply_to = asked.properties["reply_to"].value
    b.declare(reply_to, passive=True)
    b.publish("", reply_to, "answer", correlation_id="1")
    a.delivered()
    a.cancel("replies")
    b.publish("", reply_to, "too late", mandatory=True)
    b.hear()
    b.declare(reply_to, passive=True)


@script(65)
def two_replies(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.consume(REPLY_TO, "replies", no_ack=True)
    a.publish("", s.name("q"), "ask", reply_to=REPLY_TO)
    reply_to = a.get(s.name("q")).properties["reply_to"].value
    for body in "12":
        a.publish("", reply_to, body)
        a.delivered()


@script(24, 65)
def mandatory_reply(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.consume(REPLY_TO, "replies", no_ack=True)
    a.publish("", s.name("q"), "ask", reply_to=REPLY_TO)
    reply_to = a.get(s.name("q")).properties["reply_to"].value
    a.publish("", reply_to, "answer", mandatory=True)
    a.delivered()
    a.sync()
    a.rest()


@script(65)
def reply_in_a_transaction(s: Stage) -> None:
    a, b = s.channel(), s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.consume(REPLY_TO, "replies", no_ack=True)
    a.publish("", s.name("q"), "ask", reply_to=REPLY_TO)
    reply_to = a.get(s.name("q")).properties["reply_to"].value
    b.call("tx.select")
    b.publish("", reply_to, "rolled back")
    b.call("tx.rollback")
    b.publish("", reply_to, "committed")
    b.call("tx.commit")
    a.delivered()
    a.sync()
    a.rest()


@script(65)
def with_ack(s: Stage) -> None:
    s.channel().consume(REPLY_TO)


@script(65)
def twice(s: Stage) -> None:
    a = s.channel()
    a.consume(REPLY_TO, "1", no_ack=True)
    a.consume(REPLY_TO, "2", no_ack=True)


@script(65)
def publish_before_consume(s: Stage) -> None:
    a = s.channel()
    a.publish("", s.name("q"), "x", reply_to=REPLY_TO)
    a.hear()


@script(65)
def other_reply_to(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.publish("", s.name("q"), "x", reply_to="mine")
    a.publish("", s.name("q"), "x", reply_to=REPLY_TO + ".forged")
    a.drain(s.name("q"))


@script(65)
def consumed_again(s: Stage) -> None:
    a = s.channel()
    a.consume(REPLY_TO, "1", no_ack=True)
    a.cancel("1")
    a.consume(REPLY_TO, "2", no_ack=True)
    a.cancel("2")
    a.publish("", s.name("q"), "x", reply_to=REPLY_TO)
    a.hear()


@script(65)
def exclusive(s: Stage) -> None:
    a, b = s.channel(), s.channel()
    a.consume(REPLY_TO, "1", no_ack=True, exclusive=True)
    b.consume(REPLY_TO, "1", no_ack=True)


@script(65)
def other_methods(s: Stage) -> None:
    a = s.channel()
    a.declare(REPLY_TO, passive=True)
    a.declare(REPLY_TO)
    a.bind(REPLY_TO, "amq.direct", "k")
    a.get(REPLY_TO)
    a.call("queue.purge", queue=REPLY_TO)
    a.call("queue.delete", queue=REPLY_TO)
    a.publish("", REPLY_TO, "x", mandatory=True)
    a.hear()


@script(65)
def methods_on_an_address(s: Stage) -> None:
    a, b = s.channel(), s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.consume(REPLY_TO, "replies", no_ack=True)
    a.publish("", s.name("q"), "ask", reply_to=REPLY_TO)
    reply_to = a.get(s.name("q")).properties["reply_to"].value
    b.bind(reply_to, "amq.direct", s.name("k"))
    b.get(reply_to)
    b.consume(reply_to, "c", no_ack=True)
    b.call("queue.purge", queue=reply_to)


@script(65)
def forged_token(s: Stage) -> None:
    a = s.channel()
    a.consume(REPLY_TO, "1", no_ack=True)
    forged = REPLY_TO + ".g1h2AAAAA.forged=="
    a.publish("", forged, "x", mandatory=True)
    a.hear()
    a.sync()
    a.declare(forged, passive=True)


@script(65)
def confirmed_reply(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.consume(REPLY_TO, "1", no_ack=True)
    a.publish("", s.name("q"), "ask", reply_to=REPLY_TO)
    reply_to = a.get(s.name("q")).properties["reply_to"].value
    a.confirm()
    a.publish("", reply_to, "answer")
    a.confirmed()
    a.delivered()


@script(65)
def through_an_exchange(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.consume(REPLY_TO, "1", no_ack=True)
    a.publish("", s.name("q"), "ask", reply_to=REPLY_TO)
    reply_to = a.get(s.name("q")).properties["reply_to"].value
    a.publish("amq.direct", reply_to, "not by the default exchange", mandatory=True)
    a.hear()
    a.publish("", "nowhere", "by a copy", headers={"CC": [reply_to]})
    a.delivered()
