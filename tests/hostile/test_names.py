"""One name, cleaned once: no spelling of a name does what the name itself may not.

Which fields are names is derived: from the table of methods, with the arguments that the source
knows, and from the routes of the HTTP API.  A new one must be declared here, as a name or as none.
Each is tried in every spelling by a user without rights, and by one whose patterns leave the names
out, on a real broker: nothing is seen, nothing changes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest

from leveret.wire.spec import METHODS, SERVER, MethodSpec
from support.brokers.broker_process import BrokerProcess
from support.hostile.hostile_methods import argument_names, encoded
from support.hostile.hostile_requests import EXAMPLES, Example, key_of, read_by, routes
from support.http.http_api import Api
from support.http.http_streams import HttpUser, http_port
from support.wire import raw
from support.wire.raw_codec import method, publish

#: What stands in the messages of others.
MARK: Final = "none-of-your-business"

CLIENT_METHODS: Final = [spec for spec in METHODS.values() if spec.sender != SERVER]

#: The texts of methods that name no exchange and no queue.
NO_NAMES: Final = {
    "connection.start-ok mechanism", "connection.start-ok locale", "connection.start-ok response",
    "connection.start-ok client_properties", "connection.secure-ok response",
    # A vhost is found by the text as it is, and only what an operator made is there.
    "connection.open virtual_host",
    "connection.close reply_text", "channel.close reply_text",
    "connection.update-secret new_secret", "connection.update-secret reason",
    "access.request realm", "exchange.declare type",
    # Numbers as text, by which a client asks for its own publishes.
    "channel.open key",
    # A key is matched, never cleaned: to the default exchange only the very name of a queue leads.
    "exchange.bind routing_key", "exchange.unbind routing_key", "queue.bind routing_key",
    "queue.unbind routing_key", "basic.publish routing_key",
    # Of one channel, whose own it is.
    "basic.consume consumer_tag", "basic.cancel consumer_tag", "basic.cancel-ok consumer_tag",
}  # fmt: skip

#: Of the arguments and headers that the source knows, those that name an exchange or a queue.
NAMED_ARGUMENTS: Final = {"alternate-exchange", "x-dead-letter-exchange"}

#: Those of them that the broker itself writes, and reads to show them only.
WRITTEN: Final = {
    "x-first-death-exchange", "x-first-death-queue", "x-last-death-exchange", "x-last-death-queue",
    "x-first-death-reason", "x-last-death-reason", "x-death",
}  # fmt: skip

#: Words in which a name could hide.
_SUSPECT: Final = re.compile(
    "exchange|queue|source|destination|stream|sink|death|dead-letter|staging|name"
)

#: Arguments with such a word that hold a number, a word of ours, or a name that is found as it is.
NO_ARGUMENT_NAMES: Final = {
    "x-dead-letter-routing-key", "x-dead-letter-strategy", "x-queue-leader-locator", "x-queue-mode",
    "x-queue-type", "x-queue-version",
    "x-staging-batch", "x-staging-destination", "x-staging-exchange", "x-staging-routing-key",
    "x-staging-sink", "x-stream-consumer",
    "x-stream-filter", "x-stream-filter-headers", "x-stream-filter-routing-key",
    "x-stream-filter-value", "x-stream-id", "x-stream-match-unfiltered",
    "x-stream-max-segment-size-bytes", "x-stream-name", "x-stream-offset",
    "x-stream-partition-order", "x-stream-tell-id", "x-stream-timestamp", "x-super-stream",
    "x-super-stream-partition", "x-super-stream-partitions",
}  # fmt: skip

#: Names in the paths of routes that name an exchange, a queue or a super stream, by the path's
#: start; in all others a name is found as it is, in what only operators make.
CLEANED_PARTS: Final = {
    ("/api/queues/", "name"), ("/api/streams/", "name"), ("/api/super-streams/", "name"),
    ("/api/publishers/", "queue"), ("/api/exchanges/", "name"),
    ("/api/bindings/", "source"), ("/api/bindings/", "destination"),
}  # fmt: skip
EXACT_PARTS: Final = {
    "vhost", "user", "component", "id", "consumer", "sink", "publisher",
    "/api/policies/ name", "/api/operator-policies/ name", "/api/parameters/ name",
    "/api/global-parameters/ name", "/api/vhost-limits/ name", "/api/user-limits/ name",
    "/api/nodes/ name", "/api/healthchecks/ name", "/api/auth/ name", "/api/vhosts/ name",
    "/api/feature-flags/ name", "pattern",
    # Of connections and channels, and what names nothing.
    "connection", "channel", "port", "protocol", "within", "unit", "password", "kind", "end",
    "props",
    # Of backups: one that was begun, and a file of the broker's own list.
    "backup", "path",
    # Found as it is, so that one from before can be taken away; what is set is cleaned.
    "/api/topic-permissions/ exchange",
}  # fmt: skip

#: Fields of bodies, and parameters of queries, that are no names of exchanges or queues.
NO_FIELDS: Final = {
    "password", "password_hash", "hashing_algorithm", "tags", "value", "configure", "write", "read",
    "pattern", "definition", "priority", "apply-to", "timestamp", "count", "after", "position",
    "routing-key", "headers", "partitions", "arguments", "offset", "if-unused", "if-empty",
    "destination", "before", "end", "wait_ms", "max_bytes", "memory", "prefix", "action", "ackmode",
    "truncate", "encoding", "type", "payload_encoding", "properties", "routing_key", "payload",
    "run", "query_id", "query_name",
    "users",
    # The cluster's.
    "name",
}  # fmt: skip
CLEANED_FIELDS: Final = {"exchange"}

#: What makes something new by its name in the path.
NEW_NAMES: Final = {
    "/api/vhosts/{vhost}": ("vhost",),
    "/api/users/{user}": ("user",),
    "/api/policies/{vhost}/{name}": ("name",),
    "/api/operator-policies/{vhost}/{name}": ("name",),
    "/api/parameters/{component}/{vhost}/{name}": ("component", "name"),
    "/api/global-parameters/{name}": ("name",),
    "/api/super-streams/{vhost}/{name}": ("name",),
    "/api/queues/{vhost}/{name}": ("name",),
    "/api/exchanges/{vhost}/{name}": ("name",),
    "/api/streams/{vhost}/{name}/consumers/{consumer}": ("consumer",),
}

#: What changes something that must be there.
NO_NEW_NAMES: Final = {
    "/api/vhost-limits/{vhost}", "/api/vhost-limits/{vhost}/{name}",
    "/api/user-limits/{user}", "/api/user-limits/{user}/{name}",
    "/api/permissions/{vhost}/{user}", "/api/topic-permissions/{vhost}/{user}",
    "/api/streams/{vhost}/{name}/consumers/{consumer}/owner/{user}",
    "/api/publishers/{vhost}/{queue}/{publisher}/owner/{user}",
    "/api/sinks/{vhost}/{sink}/owner/{user}",
    "/api/cluster-name", "/api/feature-flags/{name}/enable",
}  # fmt: skip

#: One of each kind that no new name may hold, but for line ends.
CONTROLS: Final = ("\x00", "\t", "\x1b[31m", "\x7f", "\x85", "\x9b", "\u2028", "\u202e", "\u2066")

SECRETS: Final = ("secret", "amq.topic", "amq.default")


def spellings(name: str) -> list[str]:
    """The ways to write a name that cleaning undoes."""
    middle = len(name) // 2
    found = [name + "\n", "\r\n" + name, name[:middle] + "\n" + name[middle:], f"\r{name}\r"]
    return [*found, "\n", "\r", "\r\n\r\n"]


# -- declarations ----------------------------------------------------------------------------------


def test_every_text_of_a_method_is_declared_a_name_or_none() -> None:
    known: set[str] = set()
    for spec in CLIENT_METHODS:
        for field in spec.fields:
            if field.reserved or field.kind not in ("shortstr", "longstr", "table"):
                continue
            place = f"{spec.full_name} {field.name}"
            known.add(place)
            is_name = field.name in spec.names
            is_arguments = field.name == "arguments"
            assert is_name + (place in NO_NAMES) + is_arguments == 1, f"declare {place}"
    assert known >= NO_NAMES


def test_every_argument_is_declared_a_name_or_none() -> None:
    cleaned = {name for spec in METHODS.values() for name in spec.named_arguments}
    assert cleaned == NAMED_ARGUMENTS
    suspect = {name for name in argument_names() if _SUSPECT.search(name)}
    assert suspect == NAMED_ARGUMENTS | WRITTEN | NO_ARGUMENT_NAMES


def _start_of(path: str) -> str:
    return "/".join(path.split("/")[:3]) + "/"


def test_every_name_of_a_route_is_declared() -> None:
    for route in routes() + routes(users=True):
        start = _start_of(route.path)
        for part in re.findall(r"\{(\w+)\}", route.path):
            is_exact = part in EXACT_PARTS or f"{start} {part}" in EXACT_PARTS
            assert ((start, part) in CLEANED_PARTS) + is_exact == 1, f"declare {part} {route.path}"
        fields, query = read_by(route)
        if not re.search("definitions|all-configuration|/api/vhosts", route.path):
            left = (fields | query) - NO_FIELDS - CLEANED_FIELDS
            assert not left, f"declare {left} of {route.path}"
        if route.method == "PUT":
            assert (route.path in NEW_NAMES) + (route.path in NO_NEW_NAMES) == 1, route.path


# -- a broker with secrets -------------------------------------------------------------------------


def without_rates(value: object) -> object:
    """Return what the API says without what the broker samples from time to time."""
    if isinstance(value, dict):
        return {
            key: without_rates(one)
            for key, one in value.items()
            if key != "rates_known" and not key.endswith("_details")
        }
    return [without_rates(one) for one in value] if isinstance(value, list) else value


@dataclass
class World:
    """A broker, its operator's API, and its HTTP port."""

    broker: BrokerProcess
    api: Api
    port: int

    def state(self) -> str:
        """All that a user could change."""
        found = []
        for path in ("definitions", "queues", "streams/%2F", "sinks/%2F", "super-streams/%2F"):
            status, answer = self.api.ask("GET", f"/api/{path}")
            assert status == 200, (path, answer)
            found.append(without_rates(answer))
        return json.dumps(found, sort_keys=True)

    def login(self, user: str) -> raw.Connection:
        """A connection with channel 1 open."""
        connection = raw.connect(self.broker.uri, raw.Login(user=user, password="p"))
        connection.open_channel(1)
        return connection


#: Users and their permissions; `own` may do all with names that begin otherwise.
USERS: Final = {
    "nobody": {"configure": "", "write": "", "read": ""},
    "walled": dict.fromkeys(("configure", "write", "read"), r"^(?!secret|amq\.)"),
    "topical": dict.fromkeys(("configure", "write", "read"), ".*"),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with BrokerProcess(tmp_path_factory.mktemp("data")) as broker:
        api = Api(broker.data_dir / "management.sock")
        for user, permission in USERS.items():
            assert api.change("PUT", f"/api/users/{user}", {"password": "p", "tags": ""}) == 201
            assert api.change("PUT", f"/api/permissions/%2F/{user}", permission) == 201
        topics = {"exchange": "amq.topic", "write": "^open$", "read": "^open$"}
        assert api.change("PUT", "/api/topic-permissions/%2F/topical", topics) == 201
        with raw.connect(broker.uri) as operator:
            operator.open_channel(1)
            _declare(operator)
            operator.sync(1)
        yield World(broker, api, http_port(broker))
        api.close()


def _declare(operator: raw.Connection) -> None:
    stream = {"x-queue-type": "stream"}
    for name in ("secret", "mine"):
        operator.call(1, "queue.declare", queue=name, durable=True)
        operator.call(1, "exchange.declare", exchange=name, type="topic", durable=True)
        operator.send(publish(1, "", name, MARK.encode(), delivery_mode=2))
    operator.call(1, "queue.bind", queue="secret", exchange="secret", routing_key="#")
    operator.call(1, "queue.declare", queue="secretlog", durable=True, arguments=stream)
    operator.send(publish(1, "", "secretlog", MARK.encode()))
    parts = {**stream, "x-super-stream-partitions": 2}
    operator.call(1, "queue.declare", queue="secretparts", durable=True, arguments=parts)


# -- methods ---------------------------------------------------------------------------------------

_GOOD: Final[dict[str, Any]] = {
    "queue": "mine", "exchange": "mine", "source": "mine", "destination": "mine",
    "routing_key": "k", "type": "topic", "durable": True,
    "queue.declare queue": "fresh", "exchange.declare exchange": "fresh",
}  # fmt: skip


def _sent(spec: MethodSpec, place: str, value: Any) -> bytes:
    """The bytes of a method whose names are the user's own, but for the one at `place`."""
    values: dict[int, Any] = {}
    for number, field in enumerate(spec.fields):
        if not field.reserved:
            found = _GOOD.get(f"{spec.full_name} {field.name}", _GOOD.get(field.name))
            values[number] = value if field.name == place else found
    return encoded(spec, values, b"m")


def _hostile() -> list[tuple[str, bytes]]:
    """Every method with every name of it in every spelling."""
    found: list[tuple[str, bytes]] = []
    for spec in CLIENT_METHODS:
        for name in [one for secret in SECRETS for one in spellings(secret)]:
            found += [
                (f"{spec.full_name} {place}={name!r}", _sent(spec, place, name))
                for place in spec.names
            ]
            for argument in spec.named_arguments:
                sent = _sent(spec, "arguments", {argument: name})
                found.append((f"{spec.full_name} {argument}={name!r}", sent))
    return found


@pytest.mark.parametrize("user", ["nobody", "walled"])
def test_no_method_takes_another_spelling_for_another_name(world: World, user: str) -> None:
    before = world.state()
    cases = _hostile()
    assert len({label.split("=")[0] for label, _ in cases}) >= 18
    with world.login(user) as connection:
        for label, sent in cases:
            connection.send(sent)
            got = connection.next_method()
            assert got.name == "channel.close", f"{label}: {got}"
            assert got.code in (403, 406), f"{label}: {got}"
            assert MARK not in str(got), label
            connection.send(method(1, "channel.close-ok"))
            connection.open_channel(1)
            assert world.state() == before, label


@pytest.mark.parametrize("spelling", ["amq.topic\n", "\r\namq.topic", "amq.\rtopic"])
def test_topic_permissions_hold_for_every_spelling(world: World, spelling: str) -> None:
    before = world.state()
    with world.login("topical") as connection:
        for sent in (
            publish(1, spelling, "closed", b"m"),
            method(1, "queue.bind", queue="mine", exchange=spelling, routing_key="closed"),
            method(1, "queue.unbind", queue="mine", exchange=spelling, routing_key="closed"),
            method(1, "exchange.bind", destination="mine", source=spelling, routing_key="closed"),
            method(1, "exchange.unbind", destination="mine", source=spelling, routing_key="closed"),
        ):
            connection.send(sent)
            connection.expect_channel_close(1, 403, "access to topic 'closed'")
            connection.open_channel(1)
        connection.send(publish(1, spelling, "open", b"m"))
        connection.sync(1)
    assert world.state() == before


def test_a_name_is_the_cleaned_one_to_whoever_may(world: World) -> None:
    """Behaviour 41 (names lose CR and LF).

    Declare, bind, publish and read under three spellings, to one queue.
    """
    with raw.connect(world.broker.uri) as operator:
        operator.open_channel(1)
        assert operator.declare(1, "\nclean\r").queue == "clean"
        operator.call(1, "queue.bind", queue="cle\nan", exchange="amq.\ndirect", routing_key="k")
        operator.send(publish(1, "amq.direct\r\n", "k", b"m"))
        got = operator.get(1, "\rclean")
        assert got is not None
        assert (got.exchange, got.body) == ("amq.direct", b"m")
        operator.call(1, "queue.delete", queue="clean\n")


def test_line_ends_alone_name_nothing_even_to_who_may_all(world: World) -> None:
    before = world.state()
    with raw.connect(world.broker.uri) as operator:
        operator.open_channel(1)
        for spec in CLIENT_METHODS:
            for place in spec.names:
                operator.send(_sent(spec, place, "\r\n"))
                ids = (spec.class_id, spec.method_id)
                operator.expect_channel_close(1, 406, "line ends", ids)
                operator.open_channel(1)
    assert world.state() == before


def test_no_new_name_of_a_method_holds_a_control_character(world: World) -> None:
    before = world.state()
    stream = {"x-queue-type": "stream"}
    staging = {"x-staging-sink": "s", "x-staging-batch": 1, "x-queue-type": "classic"}
    with raw.connect(world.broker.uri) as operator:
        operator.open_channel(1)
        for control in CONTROLS:
            name = f"a{control}b"
            for sent in (
                method(1, "queue.declare", queue=name, durable=True),
                method(1, "queue.declare", queue=name, durable=True, arguments=stream),
                method(
                    1, "queue.declare", queue=name, durable=True,
                    arguments={**stream, "x-super-stream-partitions": 2},
                ),
                method(
                    1, "queue.declare", queue="staging", durable=True,
                    arguments={**staging, "x-staging-sink": name},
                ),
                method(1, "exchange.declare", exchange=name, type="fanout"),
                method(
                    1, "basic.consume", queue="secretlog", consumer_tag="t",
                    arguments={"x-stream-consumer": name},
                ),
                publish(1, "", "mine", b"m", headers={"x-publisher": name, "x-publishing-id": 1}),
                publish(
                    1, "", "amq.leveret.commit",
                    json.dumps({"sink": name, "batch": 1, "queues": []}).encode(),
                ),
            ):  # fmt: skip
                operator.call(1, "basic.qos", prefetch_count=1)
                operator.send(sent)
                operator.expect_channel_close(1, 406, "control character")
                operator.open_channel(1)
    assert world.state() == before


# -- routes ----------------------------------------------------------------------------------------


def _path(path: str, values: dict[str, str]) -> str:
    """A path with its names, percent-encoded."""
    return re.sub(r"\{(\w+)\}", lambda found: quote(values[found[1]], safe=""), path)


#: What is behind the routes of users.
_TARGETS: Final = {
    "/api/streams/": "secretlog", "/api/super-streams/": "secretparts",
    "/api/publishers/": "secret", "/api/sinks/": "secret",
}  # fmt: skip


@pytest.mark.parametrize("user", ["nobody", "walled"])
def test_no_route_takes_another_spelling_for_another_name(world: World, user: str) -> None:
    before = world.state()
    tried = 0
    with HttpUser(world.port, user, "p") as client:
        for route in routes(users=True):
            secret = _TARGETS[_start_of(route.path)]
            for part in re.findall(r"\{(\w+)\}", route.path):
                good = {"vhost": "/", "name": secret, "queue": secret, "sink": secret}
                good |= {"consumer": "reader", "publisher": "publisher", "user": user}
                for name in spellings("/" if part == "vhost" else secret):
                    path = _path(route.path, {**good, part: name})
                    body = EXAMPLES.get(key_of(route), Example({})).body
                    client.http.request(
                        route.method, path, None if body is None else json.dumps(body),
                        client.headers,
                    )  # fmt: skip
                    answer = client.http.getresponse()
                    text = answer.read().decode(errors="replace")
                    label = f"{route.method} {path}: {answer.status} {text}"
                    assert answer.status in (400, 403, 404), label
                    assert MARK not in text, label
                    tried += 1
    assert tried > 50
    assert world.state() == before


def test_an_operators_route_takes_the_cleaned_name(world: World) -> None:
    with raw.connect(world.broker.uri) as operator:
        operator.open_channel(1)
        operator.declare(1, "gone")
    status, found = world.api.ask("GET", "/api/queues/%2F/go%0Ane")
    assert isinstance(found, dict)
    assert (status, found["name"]) == (200, "gone")
    assert world.api.change("DELETE", "/api/queues/%2F/%0Dgone%0A") == 204
    status, _ = world.api.ask("GET", "/api/queues/%2F/%0A")
    assert status == 400


def test_no_new_name_of_a_route_holds_a_control_character(world: World) -> None:
    before = world.state()
    tried = 0
    for route in routes():
        parts = NEW_NAMES.get(route.path, ()) if route.method == "PUT" else ()
        for part in parts:
            for control in CONTROLS:
                values = {
                    "vhost": "/", "component": "shovel", "name": "n", "user": "u", "consumer": "c",
                }  # fmt: skip
                if route.path.startswith("/api/streams/"):
                    values["name"] = "secretlog"
                example = EXAMPLES[key_of(route)]
                path = _path(route.path, {**values, part: f"a{control}b"})
                status, answer = world.api.ask("PUT", path, example.body)
                assert status == 400, (path, status, answer)
                assert "control character" in str(answer), (path, answer)
                tried += 1
    assert tried == len(CONTROLS) * sum(len(parts) for parts in NEW_NAMES.values())
    assert world.state() == before


# -- what is there already -------------------------------------------------------------------------

ODD: Final = "odd\tname\x1bwith\x7fcontrols"


def test_what_has_such_a_name_is_used_exported_and_deleted(tmp_path: Path) -> None:
    """Definitions are the way in that is left: what a broker exported, another takes."""
    definitions = {
        "vhosts": [{"name": ODD}],
        "users": [{"name": ODD, "password_hash": "", "tags": []}],
        "permissions": [
            {"user": who, "vhost": ODD, "configure": ".*", "write": ".*", "read": ".*"}
            for who in (ODD, "guest")
        ],
        "policies": [
            {"vhost": ODD, "name": ODD, "pattern": "^none$", "definition": {"max-length": 5}}
        ],
        "global_parameters": [{"name": ODD, "value": 1}],
        "queues": [{"name": ODD, "vhost": ODD, "durable": True}],
        "exchanges": [{"name": ODD, "vhost": ODD, "type": "direct", "durable": True}],
        "bindings": [
            {"source": ODD, "vhost": ODD, "destination": ODD, "destination_type": "queue",
             "routing_key": "k"},
        ],
    }  # fmt: skip
    odd = quote(ODD, safe="")
    with BrokerProcess(tmp_path) as broker:
        api = Api(broker.data_dir / "management.sock")
        assert api.ask("POST", "/api/definitions", definitions)[0] in (200, 204)
        status, exported = api.ask("GET", "/api/definitions")
        assert status == 200
        api.close()
        broker.restart()
        api = Api(broker.data_dir / "management.sock")
        assert api.ask("GET", "/api/definitions") == (200, exported)
        assert api.ask("POST", "/api/definitions", exported)[0] in (200, 204)
        with raw.connect(broker.uri, raw.Login(vhost=ODD)) as client:
            client.open_channel(1)
            client.declare(1, ODD, durable=True)
            client.call(1, "exchange.declare", exchange=ODD, type="direct", durable=True)
            client.send(publish(1, ODD, "k", b"m"))
            assert client.drain(1, ODD) == [b"m"]
            client.call(1, "exchange.delete", exchange=ODD)
            client.call(1, "queue.delete", queue=ODD)
        assert api.change("DELETE", f"/api/policies/{odd}/{odd}") == 204
        assert api.change("DELETE", f"/api/global-parameters/{odd}") == 204
        assert api.change("DELETE", f"/api/users/{odd}") == 204
        assert api.change("DELETE", f"/api/vhosts/{odd}") == 204
        api.close()
