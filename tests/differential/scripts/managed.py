"""What a manager sets: policies, users and permissions, vhosts and their limits."""

from __future__ import annotations

from typing import Any

from differential.script import script
from differential.stage import Stage
from support.wire import raw

VHOST = "/api/vhosts/{s}v"


def policy(s: Stage, definition: dict[str, Any], *, kind: str = "policies", **fields: Any) -> None:
    """Set the script's policy."""
    body = {"pattern": f"^{s.prefix}", "definition": definition, "apply-to": "all", **fields}
    s.api("PUT", f"/api/{kind}/%2F/{{s}}p", body)


def user(s: Stage, configure: str, write: str, read: str) -> raw.Login:
    """A user of the script's with these permissions on the vhost `/`."""
    s.api("PUT", "/api/users/{s}u", {"password": "secret", "tags": ""})
    rights = {"configure": configure, "write": write, "read": read}
    s.api("PUT", "/api/permissions/%2F/{s}u", rights)
    return raw.Login(user=s.name("u"), password="secret")


@script(33, 37)
def policy_alternate_exchange(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    a.bind(s.name("q"), "amq.fanout")
    a.exchange(s.name("x"))
    policy(s, {"alternate-exchange": "amq.fanout"})
    a.publish(s.name("x"), "k", "unmatched")
    a.drain(s.name("q"))
    a.call("queue.delete", queue=s.name("q"))
    a.call("exchange.delete", exchange=s.name("x"))


@script(66, 67)
def policy_limits(s: Stage) -> None:
    a = s.channel()
    policy(s, {"max-length": 2, "overflow": "reject-publish"})
    a.declare(s.name("q"), exclusive=True)
    a.confirm()
    for body in "123":
        a.publish("", s.name("q"), body)
    a.confirmed()
    s.api("DELETE", "/api/policies/%2F/{s}p")
    a.publish("", s.name("q"), "4")
    a.confirmed()


@script(66, 67)
def policy_reaches_a_queue_that_is_there(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("q"), exclusive=True)
    for body in "1234":
        a.publish("", s.name("q"), body)
    a.count(s.name("q"), 4)
    policy(s, {"max-length": 2})
    a.count(s.name("q"), 2)
    a.drain(s.name("q"))


@script(67, 70)
def policy_dead_letters(s: Stage) -> None:
    a = s.channel()
    policy(s, {"dead-letter-exchange": "", "dead-letter-routing-key": s.name("dead")})
    a.declare(s.name("dead"), exclusive=True)
    a.declare(s.name("q"), exclusive=True)
    a.publish("", s.name("q"), "x")
    a.reject(a.get(s.name("q"), no_ack=False).tag, requeue=False)
    a.count(s.name("dead"), 1)
    a.drain(s.name("dead"))


@script(66)
def policy_and_argument(s: Stage) -> None:
    a = s.channel()
    policy(s, {"max-length": 3})
    for limit in (2, 5):
        queue = s.name(str(limit))
        a.declare(queue, exclusive=True, arguments={"x-max-length": limit})
        for body in "123456":
            a.publish("", queue, body)
        a.drain(queue)


@script(66)
def operator_policy(s: Stage) -> None:
    a = s.channel()
    policy(s, {"max-length": 5})
    policy(s, {"max-length": 2}, kind="operator-policies")
    a.declare(s.name("q"), exclusive=True)
    for body in "1234":
        a.publish("", s.name("q"), body)
    a.drain(s.name("q"))
    s.api("DELETE", "/api/operator-policies/%2F/{s}p")
    s.api("DELETE", "/api/policies/%2F/{s}p")


@script(66)
def policy_invalid(s: Stage) -> None:
    for definition in (
        {"max-length": "5"}, {"max-length": -1}, {"no-such-key": 1}, {"message-ttl": -1}, {},
        {"overflow": "x"}, {"expires": 0}, {"dead-letter-exchange": 5}, {"delivery-limit": -1},
    ):  # fmt: skip
        s.note(str(definition))
        policy(s, definition)
    policy(s, {"max-length": 5}, pattern="[")
    policy(s, {"max-length": 5}, priority="x")
    policy(s, {"max-length": 5}, **{"apply-to": "nothing"})
    s.api("DELETE", "/api/policies/%2F/{s}p")
    s.api("DELETE", "/api/policies/%2F/{s}none")


@script(66)
def policy_of_the_highest_priority(s: Stage) -> None:
    a = s.channel()
    for name, priority, limit in (("low", 1, 1), ("high", 5, 3)):
        body = {
            "pattern": f"^{s.prefix}",
            "definition": {"max-length": limit},
            "priority": priority,
        }
        s.api("PUT", f"/api/policies/%2F/{{s}}{name}", body)
    a.declare(s.name("q"), exclusive=True)
    for text in "12345":
        a.publish("", s.name("q"), text)
    a.drain(s.name("q"))
    s.api("DELETE", "/api/policies/%2F/{s}high")
    a.count(s.name("q"))
    for text in "12345":
        a.publish("", s.name("q"), text)
    a.drain(s.name("q"))
    s.api("DELETE", "/api/policies/%2F/{s}low")


@script(74)
def without_configure(s: Stage) -> None:
    owner, a = s.channel(), s.channel(user(s, "^$", ".*", ".*"))
    owner.declare(s.name("q"))
    owner.exchange(s.name("x"))
    a.declare(s.name("q"))
    a.declare(s.name("new"))
    a.declare("", exclusive=True)
    a.count(s.name("q"))
    a.exchange(s.name("x"))
    a.exchange(s.name("new"))
    a.exchange(s.name("x"), passive=True)
    a.call("queue.delete", queue=s.name("q"))
    a.call("queue.delete", queue=s.name("new"))
    a.call("exchange.delete", exchange=s.name("x"))
    a.bind(s.name("q"), s.name("x"))
    a.call("queue.unbind", queue=s.name("q"), exchange=s.name("x"))
    a.publish("", s.name("q"), "x")
    a.get(s.name("q"))
    a.consume(s.name("q"))
    a.call("queue.purge", queue=s.name("q"))
    owner.call("queue.delete", queue=s.name("q"))
    owner.call("exchange.delete", exchange=s.name("x"))


@script(19, 74)
def without_write(s: Stage) -> None:
    owner, a = s.channel(), s.channel(user(s, ".*", "^$", ".*"))
    owner.declare(s.name("q"))
    owner.exchange(s.name("x"))
    a.publish("", s.name("q"), "x")
    a.sync()
    a.publish(s.name("x"), "k", "x")
    a.sync()
    a.publish(s.name("missing"), "k", "x")
    a.sync()
    a.bind(s.name("q"), s.name("x"))
    a.call("queue.unbind", queue=s.name("q"), exchange=s.name("x"))
    a.call("exchange.bind", destination=s.name("x"), source="amq.fanout")
    a.declare(s.name("d"), exclusive=True, arguments={"x-dead-letter-exchange": s.name("x")})
    a.exchange(s.name("y"), arguments={"alternate-exchange": s.name("x")})
    a.get(s.name("q"))
    owner.call("queue.delete", queue=s.name("q"))
    owner.call("exchange.delete", exchange=s.name("x"))
    owner.call("exchange.delete", exchange=s.name("y"))


@script(46, 74)
def without_read(s: Stage) -> None:
    owner, a = s.channel(), s.channel(user(s, ".*", ".*", "^$"))
    owner.declare(s.name("q"))
    owner.exchange(s.name("x"))
    a.get(s.name("q"))
    a.consume(s.name("q"))
    a.call("queue.purge", queue=s.name("q"))
    a.bind(s.name("q"), s.name("x"))
    a.call("queue.unbind", queue=s.name("q"), exchange=s.name("x"))
    a.call("exchange.bind", destination="amq.fanout", source=s.name("x"))
    a.declare(s.name("d"), exclusive=True, arguments={"x-dead-letter-exchange": s.name("x")})
    a.exchange(s.name("y"), arguments={"alternate-exchange": s.name("x")})
    a.publish("", s.name("q"), "x")
    a.sync()
    a.consume("amq.rabbitmq.reply-to", "r", no_ack=True)
    owner.call("queue.delete", queue=s.name("q"))
    owner.call("exchange.delete", exchange=s.name("x"))
    owner.call("exchange.delete", exchange=s.name("y"))


@script(74)
def write_to_the_default_exchange(s: Stage) -> None:
    owner, a = s.channel(), s.channel(user(s, "", r"^amq\.default$", ""))
    owner.declare(s.name("q"))
    a.publish("", s.name("q"), "x", mandatory=True)
    a.sync()
    a.publish("amq.direct", "k", "x")
    a.sync()
    owner.drain(s.name("q"))
    owner.call("queue.delete", queue=s.name("q"))


@script(74)
def topic_permissions(s: Stage) -> None:
    login = user(s, ".*", ".*", ".*")
    rights = {"exchange": "amq.topic", "write": "^a", "read": "^b"}
    s.api("PUT", "/api/topic-permissions/%2F/{s}u", rights)
    a = s.channel(login)
    a.declare(s.name("q"), exclusive=True)
    a.publish("amq.topic", "a.b", "x")
    a.sync()
    a.publish("amq.topic", "b.a", "x")
    a.sync()
    a.declare(s.name("q"), exclusive=True)
    a.bind(s.name("q"), "amq.topic", "b.#")
    a.bind(s.name("q"), "amq.topic", "a.#")
    a.publish("amq.direct", "b", "another exchange")
    a.sync()


@script(6)
def vhost_forbidden(s: Stage) -> None:
    s.api("PUT", "/api/users/{s}u", {"password": "secret", "tags": ""})
    peer = s.dial()
    login = raw.Login(user=s.name("u"), password="secret")
    peer.raw().start(login)
    peer.raw().tune_ok(login)
    peer.send(raw.method(0, "connection.open", vhost="/"))
    peer.hear()


@script(22, 74)
def user_id_of_an_impersonator(s: Stage) -> None:
    login = user(s, ".*", ".*", ".*")
    s.api("PUT", "/api/users/{s}u", {"password": "secret", "tags": "impersonator"})
    a = s.channel(login)
    a.declare(s.name("q"), exclusive=True)
    a.publish("", s.name("q"), "x", user_id="guest")
    a.sync()
    a.drain(s.name("q"))


def vhost(s: Stage) -> raw.Login:
    """A vhost of the script's, for guest."""
    s.api("PUT", VHOST)
    s.api("PUT", "/api/permissions/{s}v/guest", {"configure": ".*", "write": ".*", "read": ".*"})
    return raw.Login(vhost=s.name("v"))


@script(73)
def vhost_deleted(s: Stage) -> None:
    peer = s.peer(vhost(s))
    peer.channel(1).declare(s.name("q"))
    s.api("DELETE", VHOST)
    peer.hear()


@script(73)
def vhost_queue_limit(s: Stage) -> None:
    login = vhost(s)
    s.api("PUT", "/api/vhost-limits/{s}v/max-queues", {"value": 1})
    a = s.channel(login)
    a.declare(s.name("1"))
    a.declare(s.name("1"))
    a.declare(s.name("2"))
    s.api("DELETE", VHOST)


@script(6, 73)
def vhost_connection_limit(s: Stage) -> None:
    login = vhost(s)
    s.api("PUT", "/api/vhost-limits/{s}v/max-connections", {"value": 0})
    peer = s.dial()
    peer.raw().start(login)
    peer.raw().tune_ok(login)
    peer.send(raw.method(0, "connection.open", vhost=login.vhost))
    peer.hear()
    s.api("DELETE", VHOST)


@script(6)
def user_limits(s: Stage) -> None:
    login = user(s, ".*", ".*", ".*")
    s.api("PUT", "/api/user-limits/{s}u/max-channels", {"value": 1})
    peer = s.peer(login)
    peer.channel(1).sync()
    peer.send(raw.method(2, "channel.open"))
    peer.hear(2)
    s.api("PUT", "/api/user-limits/{s}u/max-connections", {"value": 0})
    peer = s.dial()
    peer.raw().start(login)
    peer.raw().tune_ok(login)
    peer.send(raw.method(0, "connection.open", vhost="/"))
    peer.hear()


@script(75)
def definitions_imported(s: Stage) -> None:
    definitions = {
        "queues": [
            {"name": s.name("q"), "vhost": "/", "durable": True, "auto_delete": False,
             "arguments": {"x-max-length": 2}},
        ],
        "exchanges": [
            {"name": s.name("x"), "vhost": "/", "type": "fanout", "durable": True,
             "auto_delete": False, "internal": False, "arguments": {}},
        ],
        "bindings": [
            {"source": s.name("x"), "vhost": "/", "destination": s.name("q"),
             "destination_type": "queue", "routing_key": "", "arguments": {}},
        ],
    }  # fmt: skip
    a = s.channel()
    for count in range(2):
        s.api("POST", "/api/definitions", definitions)
        a.publish(s.name("x"), "", "x")
        a.count(s.name("q"), count + 1)
    a.declare(s.name("q"), durable=True, arguments={"x-max-length": 2})
    a.exchange(s.name("x"), "fanout", durable=True)
    a.call("queue.delete", queue=s.name("q"))
    a.call("exchange.delete", exchange=s.name("x"))


@script(75)
def password_hash_imported(s: Stage) -> None:
    hashed = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"  # test12, as RabbitMQ's guide says
    body = {
        "password_hash": hashed,
        "hashing_algorithm": "rabbit_password_hashing_sha256",
        "tags": "",
    }
    s.api("PUT", "/api/users/{s}u", body)
    s.api("PUT", "/api/permissions/%2F/{s}u", {"configure": "", "write": "", "read": ""})
    peer = s.peer(raw.Login(user=s.name("u"), password="test12"))
    peer.channel(1).sync()


@script(74)
def permissions_taken_away(s: Stage) -> None:
    a = s.channel(user(s, ".*", ".*", ".*"))
    a.declare(s.name("q"), exclusive=True)
    a.close()
    s.api("DELETE", "/api/permissions/%2F/{s}u")
    a.declare(s.name("p"))
    a.publish("", s.name("q"), "x")
    a.hear()
    a.consume(s.name("q"))


@script(3, 74)
def user_deleted(s: Stage) -> None:
    login = user(s, ".*", ".*", ".*")
    peer = s.peer(login)
    peer.channel(1).declare(s.name("q"), auto_delete=True)
    s.api("DELETE", "/api/users/{s}u")
    s.api("DELETE", "/api/users/{s}u")
    again = s.dial()
    again.raw().start(login)
    again.hear()


@script(3)
def password_changed(s: Stage) -> None:
    login = user(s, ".*", ".*", ".*")
    s.peer(login).close()
    s.api("PUT", "/api/users/{s}u", {"password": "other", "tags": ""})
    peer = s.dial()
    peer.raw().start(login)
    peer.hear()
    login.password = "other"
    s.peer(login).channel(1).sync()


@script(3)
def password_none(s: Stage) -> None:
    s.api("PUT", "/api/users/{s}u", {"password_hash": "", "tags": ""})
    peer = s.dial()
    peer.raw().start(raw.Login(user=s.name("u"), password=""))
    peer.hear()


@script(66)
def policy_of_ttl(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("dead"), exclusive=True)
    body = {"pattern": f"^{s.prefix}q", "definition": {
        "message-ttl": 1, "dead-letter-exchange": "", "dead-letter-routing-key": s.name("dead"),
    }}  # fmt: skip
    s.api("PUT", "/api/policies/%2F/{s}p", body)
    a.declare(s.name("q"), exclusive=True)
    a.publish("", s.name("q"), "x")
    a.count(s.name("dead"), 1)
    a.drain(s.name("dead"))
    s.api("DELETE", "/api/policies/%2F/{s}p")


@script(66)
def policy_of_ttl_comes_later(s: Stage) -> None:
    a = s.channel()
    a.declare(s.name("dead"), exclusive=True)
    a.declare(s.name("q"), exclusive=True)
    a.publish("", s.name("q"), "x")
    a.count(s.name("q"), 1)
    body = {"pattern": f"^{s.prefix}q", "definition": {
        "message-ttl": 1, "dead-letter-exchange": "", "dead-letter-routing-key": s.name("dead"),
    }}  # fmt: skip
    s.api("PUT", "/api/policies/%2F/{s}p", body)
    a.count(s.name("dead"), 1)
    a.drain(s.name("dead"))
    s.api("DELETE", "/api/policies/%2F/{s}p")


@script(33)
def policy_of_exchanges_alone(s: Stage) -> None:
    a = s.channel()
    policy(s, {"max-length": 1}, **{"apply-to": "exchanges"})
    policy(s, {"alternate-exchange": "amq.fanout"}, **{"apply-to": "exchanges"})
    a.declare(s.name("q"), exclusive=True)
    a.exchange(s.name("x"), auto_delete=True)
    a.bind(s.name("q"), "amq.fanout")
    a.publish(s.name("x"), "k", "unmatched")
    a.drain(s.name("q"))
    s.api("DELETE", "/api/policies/%2F/{s}p")


@script(74)
def exchange_to_exchange_rights(s: Stage) -> None:
    owner, a = s.channel(), s.channel(user(s, "", f"^{s.prefix}w", f"^{s.prefix}r"))
    for name in ("w", "r"):
        owner.exchange(s.name(name), "fanout")
    for destination, source in (("w", "r"), ("r", "w"), ("w", "w"), ("r", "r")):
        a.call("exchange.bind", destination=s.name(destination), source=s.name(source))
    for name in ("w", "r"):
        owner.call("exchange.delete", exchange=s.name(name))
