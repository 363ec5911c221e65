"""Behaviours 3, 6, 14, 19, 46 and 74: what a user may do, and what he is told of what he may not.

The broker starts on a directory with users in it, so these tests are not for another broker.  The
texts are RabbitMQ 4.3's; 3.10.8 says the same without the word for what was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leveret.broker.users.users import ARGON2, User
from leveret.server.authentication import hash_argon2
from support.brokers.brokers import Broker, Client, Dial, need_own_broker, running_broker
from support.node.core import Node
from support.store.prepared import prepare
from support.wire import raw


def make_users(node: Node) -> None:
    """Users whose passwords are their names, and what there is for them to use."""
    users = node.broker.users
    node.broker.add_vhost("other")
    node.add_user("nobody")
    node.add_user("empty", configure="")
    node.add_user("limited", configure="^c", write="^(w|cw)", read="^(r|cr)")
    node.add_user("letters", configure="^c", write="^c", read="^c")
    node.add_user("dead", configure="^c", write="^w", read="^c")
    node.add_user("topical", configure=".*", write=".*", read=".*")
    users.set_topic_permission("topical", "/", "amq.topic", "^{username}\\.", "^r")
    node.add_user("a.*", configure=".*", write=".*", read=".*")
    users.set_topic_permission("a.*", "/", "amq.topic", "^{username}$", "^{vhost}$")
    users.put(User("slow", hash_argon2(b"slow"), [], ARGON2))
    users.set_permission("slow", "/", ".*", ".*", ".*")
    users.put(User("without", b"", []))
    for name in ("few-connections", "few-channels"):
        node.add_user(name, configure=".*", write=".*", read=".*")
    users.set_limits("few-connections", {"max-connections": 1})
    users.set_limits("few-channels", {"max-channels": 2})


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """The broker of these tests, with its users."""
    need_own_broker()
    data_dir = tmp_path_factory.mktemp("access")
    prepare(data_dir, make_users)
    with running_broker(data_dir, {"login_failure_delay_ms": "100"}) as running:
        yield running


def login(user: str, vhost: str = "/") -> raw.Login:
    return raw.Login(user=user, password=user, vhost=vhost)


def refused(what: str, kind: str, name: str, user: str) -> str:
    """The text of a refusal."""
    access = f"{what} access" if what else "access"
    return f"ACCESS_REFUSED - {access} to {kind} '{name}' in vhost '/' refused for user '{user}'"


def ask_open(connection: raw.Connection, asked: raw.Login) -> None:
    """The handshake up to connection.open."""
    connection.start(asked)
    connection.tune_ok(asked)
    connection.send(raw.method(0, "connection.open", vhost=asked.vhost))


# -- 3: passwords


@pytest.mark.parametrize("user", ["slow", "limited"], ids=["argon2", "sha256"])
def test_b03_right_passwords_open_by_either_hash(client: Client, user: str) -> None:
    """3: RabbitMQ's hashes and our own; the second login is answered from memory."""
    client(login(user))
    client(login(user))


@pytest.mark.parametrize("password", ["wrong", "", "slow "])
@pytest.mark.parametrize("user", ["slow", "limited", "without", "unknown"])
def test_b03_wrong_passwords_are_403_whatever_is_wrong(
    dial: Dial, user: str, password: str
) -> None:
    """3: the text is one for all; an empty hash lets nobody in, an empty password nowhere."""
    connection = dial()
    connection.start(raw.Login(user=user, password=password))
    connection.expect_connection_close(403, "ACCESS_REFUSED - Login was refused", (0, 0))


# -- 6: vhosts


@pytest.mark.parametrize(("user", "vhost"), [("nobody", "/"), ("limited", "other")])
def test_b06_vhost_without_permission_is_530(dial: Dial, user: str, vhost: str) -> None:
    """6: a user who has no permission in a vhost does not get in."""
    connection = dial()
    ask_open(connection, login(user, vhost))
    text = f"NOT_ALLOWED - access to vhost '{vhost}' refused for user '{user}'"
    assert connection.expect_connection_close(530, text, (10, 40)).text == text


def test_b06_permission_of_empty_patterns_lets_in_and_no_further(client: Client) -> None:
    """6: '' stands for ^$."""
    connection = client(login("empty"))
    connection.send(raw.method(1, "queue.declare", queue="q"))
    connection.expect_channel_close(1, 403, refused("configure", "queue", "q", "empty"))


def test_b06_user_limit_of_connections_is_530(client: Client, dial: Dial) -> None:
    """6: one more than a user may have."""
    first = client(login("few-connections"))
    second = dial()
    ask_open(second, login("few-connections"))
    second.expect_connection_close(
        530,
        "NOT_ALLOWED - connection refused for user 'few-connections': user connection limit (1) "
        "is reached",
        (10, 40),
    )
    first.close()
    client(login("few-connections")).close()


def test_b06_user_limit_of_channels_is_530(client: Client) -> None:
    """6: channels are counted over all connections of the user."""
    first = client(login("few-channels"))
    second = client(login("few-channels"))
    second.send(raw.method(2, "channel.open"))
    second.expect_connection_close(
        530,
        "NOT_ALLOWED - number of channels opened for user 'few-channels' has reached the maximum "
        "allowed user limit of 2",
    )
    first.open_channel(2)


# -- 14: update-secret


@pytest.mark.parametrize("user", ["slow", "limited"], ids=["argon2", "sha256"])
@pytest.mark.parametrize("secret", ["password", "x", ""])
def test_b14_update_secret_is_answered_and_changes_no_password(
    client: Client, dial: Dial, user: str, secret: str
) -> None:
    """14: RabbitMQ takes any secret from a user of its own database."""
    connection = client(login(user))
    new = user if secret == "password" else secret
    connection.call(0, "connection.update-secret", new_secret=new.encode(), reason="renewed")
    connection.sync(1)
    client(login(user)).close()
    other = dial()
    other.start(raw.Login(user=user, password="x"))
    other.expect_connection_close(403, "ACCESS_REFUSED - Login was refused", (0, 0))


# -- 74: what is asked for

BIND = {"queue": "w", "routing_key": "k"}
EXCHANGE_BIND = {"destination": "wx", "routing_key": "k"}

REFUSED: list[tuple[str, dict[str, Any], tuple[str, str, str]]] = [
    ("queue.declare", {"queue": "q"}, ("configure", "queue", "q")),
    ("queue.declare", {"queue": "w"}, ("configure", "queue", "w")),
    ("queue.declare", {"queue": "xc"}, ("configure", "queue", "xc")),
    ("queue.delete", {"queue": "r"}, ("configure", "queue", "r")),
    ("queue.purge", {"queue": "w"}, ("read", "queue", "w")),
    ("basic.get", {"queue": "c"}, ("read", "queue", "c")),
    ("basic.consume", {"queue": "w"}, ("read", "queue", "w")),
    ("queue.bind", BIND | {"queue": "r", "exchange": "r"}, ("write", "queue", "r")),
    ("queue.bind", BIND | {"exchange": "w"}, ("read", "exchange", "w")),
    ("queue.unbind", BIND | {"queue": "r", "exchange": "r"}, ("write", "queue", "r")),
    ("queue.unbind", BIND | {"exchange": "w"}, ("read", "exchange", "w")),
    ("exchange.declare", {"exchange": "x", "type": "direct"}, ("configure", "exchange", "x")),
    ("exchange.delete", {"exchange": "x"}, ("configure", "exchange", "x")),
    (
        "exchange.bind",
        EXCHANGE_BIND | {"destination": "r", "source": "r"},
        ("write", "exchange", "r"),
    ),
    ("exchange.bind", EXCHANGE_BIND | {"source": "w"}, ("read", "exchange", "w")),
    ("exchange.unbind", EXCHANGE_BIND | {"source": "w"}, ("read", "exchange", "w")),
    # What is declared passively is asked for by any of the three.
    ("queue.declare", {"queue": "q", "passive": True}, ("", "queue", "q")),
    (
        "exchange.declare",
        {"exchange": "x", "type": "direct", "passive": True},
        ("", "exchange", "x"),
    ),
]


@pytest.mark.parametrize(("name", "values", "what"), REFUSED)
def test_b74_refused_without_permission(
    client: Client, name: str, values: dict[str, Any], what: tuple[str, str, str]
) -> None:
    """74: 403 to the channel, before anything is said of what there is."""
    connection = client(login("limited"))
    connection.send(raw.method(1, name, **values))
    text = refused(*what, "limited")
    assert connection.expect_channel_close(1, 403, text).text == text


ALLOWED: list[tuple[str, dict[str, Any], str]] = [
    ("queue.delete", {"queue": "c"}, ""),
    ("exchange.delete", {"exchange": "c"}, ""),
    ("queue.purge", {"queue": "r"}, "no queue 'r'"),
    ("basic.get", {"queue": "r"}, "no queue 'r'"),
    ("basic.consume", {"queue": "r"}, "no queue 'r'"),
    ("queue.bind", BIND | {"exchange": "r"}, "no exchange 'r'"),
    ("queue.unbind", BIND | {"exchange": "r"}, ""),
    ("exchange.bind", EXCHANGE_BIND | {"source": "r"}, "no exchange 'r'"),
    ("exchange.unbind", EXCHANGE_BIND | {"source": "r"}, ""),
    ("queue.declare", {"queue": "w", "passive": True}, "no queue 'w'"),
    ("queue.declare", {"queue": "r", "passive": True}, "no queue 'r'"),
    ("exchange.declare", {"exchange": "c", "type": "x", "passive": True}, "no exchange 'c'"),
]


@pytest.mark.parametrize(("name", "values", "missing"), ALLOWED)
def test_b74_allowed_with_permission(
    client: Client, name: str, values: dict[str, Any], missing: str
) -> None:
    """74: what is allowed goes on to whether it is there."""
    connection = client(login("limited"))
    if not missing:
        connection.call(1, name, **values)
        return
    connection.send(raw.method(1, name, **values))
    connection.expect_channel_close(1, 404, f"NOT_FOUND - {missing} in vhost '/'")


def test_b74_patterns_are_searched_for_not_matched_whole(client: Client) -> None:
    """74: `^c` lets `cq` through, and `xc` not."""
    connection = client(login("limited"))
    connection.declare(1, "cq", exclusive=True)


def test_b74_name_of_the_brokers_making_is_asked_for_too(client: Client) -> None:
    """74: as RabbitMQ asks for `amq.gen-…`."""
    connection = client(login("limited"))
    connection.send(raw.method(1, "queue.declare", queue="", exclusive=True))
    connection.expect_channel_close(1, 403, "configure access to queue 'amq.gen-")


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("queue.declare", {"queue": "amq.x"}, "queue name 'amq.x' contains reserved prefix"),
        ("exchange.declare", {"exchange": "", "type": "direct"}, "not permitted on the default"),
        ("exchange.delete", {"exchange": ""}, "not permitted on the default"),
        ("exchange.delete", {"exchange": "amq.topic"}, "deletion of system exchange 'amq.topic'"),
        ("queue.bind", BIND | {"exchange": ""}, "not permitted on the default"),
    ],
)
def test_b74_what_nobody_may_do_is_said_in_its_own_words(
    client: Client, name: str, values: dict[str, Any], text: str
) -> None:
    """74: the name is judged first, as in RabbitMQ."""
    connection = client(login("limited"))
    connection.send(raw.method(1, name, **values))
    connection.expect_channel_close(1, 403, text)


# -- 19: publishing


@pytest.mark.parametrize(
    ("exchange", "named"), [("", "amq.default"), ("amq.topic", "amq.topic"), ("gone", "gone")]
)
def test_b19_publish_without_write_permission_is_403(
    client: Client, exchange: str, named: str
) -> None:
    """19: the default exchange is `amq.default`; whether it is there is not told."""
    connection = client(login("limited"))
    connection.send(raw.publish(1, exchange=exchange, routing_key="cq", body=b"x"))
    text = refused("write", "exchange", named, "limited")
    assert connection.expect_channel_close(1, 403, text, (60, 40)).text == text


def test_b19_publish_with_write_permission_is_404_where_nothing_is(client: Client) -> None:
    """19: who may write is told that there is none."""
    connection = client(login("limited"))
    connection.send(raw.publish(1, exchange="w", routing_key="k", body=b"x"))
    connection.expect_channel_close(1, 404, "no exchange 'w' in vhost '/'")


# -- 46: dead letters and alternate exchanges


@pytest.mark.parametrize(
    ("user", "exchange", "what"),
    [
        ("limited", "w", ("read", "queue", "cq")),
        ("dead", "x", ("write", "exchange", "x")),
        ("dead", "", ("write", "exchange", "amq.default")),
    ],
)
def test_b46_dead_letter_exchange_wants_read_and_write(
    client: Client, user: str, exchange: str, what: tuple[str, str, str]
) -> None:
    """46: read on the queue, write on where its dead letters go."""
    connection = client(login(user))
    arguments = {"x-dead-letter-exchange": exchange}
    connection.send(raw.method(1, "queue.declare", queue="cq", arguments=arguments))
    connection.expect_channel_close(1, 403, refused(*what, user), (50, 10))


def test_b46_dead_letter_exchange_with_both_is_declared(client: Client) -> None:
    """46: the exchange need not be there."""
    arguments = {"x-dead-letter-exchange": "w"}
    client(login("dead")).declare(1, "cd", exclusive=True, arguments=arguments)


@pytest.mark.parametrize(
    ("user", "what"),
    [("limited", ("read", "exchange", "c")), ("letters", ("write", "exchange", "w"))],
)
def test_b46_alternate_exchange_wants_read_and_write(
    client: Client, user: str, what: tuple[str, str, str]
) -> None:
    """46: read on the exchange, write on its alternate."""
    connection = client(login(user))
    arguments = {"alternate-exchange": "w"}
    values = {"exchange": "c", "type": "direct", "arguments": arguments}
    connection.send(raw.method(1, "exchange.declare", **values))
    connection.expect_channel_close(1, 403, refused(*what, user), (40, 10))


# -- 74: topic permissions


def topic_refused(what: str, key: str, user: str) -> str:
    """The text of a refusal by routing key."""
    access = f"ACCESS_REFUSED - {what} access to topic '{key}' in exchange 'amq.topic' "
    return f"{access}in vhost '/' refused for user '{user}'"


def test_b74_topic_permission_on_publish(client: Client) -> None:
    """74: `{username}` stands for the user; other exchanges are free."""
    connection = client(login("topical"))
    for exchange, key in (("amq.topic", "topical.y"), ("amq.direct", "x"), ("amq.fanout", "")):
        connection.send(raw.publish(1, exchange=exchange, routing_key=key, body=b"x"))
    connection.sync(1)
    connection.send(raw.publish(1, exchange="amq.topic", routing_key="x.topical.y", body=b"x"))
    text = topic_refused("write", "x.topical.y", "topical")
    assert connection.expect_channel_close(1, 403, text, (60, 40)).text == text


@pytest.mark.parametrize("header", ["CC", "BCC"])
def test_b74_topic_permission_on_copies(client: Client, header: str) -> None:
    """74: the keys in CC and BCC are judged as the message's own (not in RabbitMQ 3.10)."""
    connection = client(login("topical"))
    for keys in (["topical.a", "topical.b"], ["topical.c", "x"]):
        headers = {header: keys}
        connection.send(raw.publish(1, "amq.topic", "topical.y", b"x", headers=headers))
    connection.expect_channel_close(1, 403, topic_refused("write", "x", "topical"))


@pytest.mark.parametrize("name", ["queue.bind", "queue.unbind"])
def test_b74_topic_permission_on_bind(client: Client, name: str) -> None:
    """74: the binding key wants read."""
    connection = client(login("topical"))
    queue = connection.declare(1, exclusive=True).queue
    values = {"queue": queue, "exchange": "amq.topic"}
    connection.call(1, name, **values, routing_key="r.#")
    connection.send(raw.method(1, name, **values, routing_key="k"))
    connection.expect_channel_close(1, 403, topic_refused("read", "k", "topical"))


def test_b74_what_a_variable_stands_for_adds_nothing_to_the_pattern(client: Client) -> None:
    """74: the user `a.*` may use the key `a.*` and not `ab`."""
    connection = client(login("a.*"))
    connection.send(raw.publish(1, exchange="amq.topic", routing_key="a.*", body=b"x"))
    connection.sync(1)
    connection.send(raw.publish(1, exchange="amq.topic", routing_key="ab", body=b"x"))
    connection.expect_channel_close(1, 403, topic_refused("write", "ab", "a.*"))
