"""Hostile requests to the HTTP API, made from its own table of routes.

Each route has a valid request (`EXAMPLES`; the other names in paths are in `NAMES`).  A case is
such a request with one or several places made hostile: a name in the path, a value in the query, a
field of the body, the body as a whole.  The routes come from the modules that the API serves, the
fields of bodies and queries from the source of their handlers, so that `uncovered` reports new
ones.
"""

from __future__ import annotations

import ast
import copy
import inspect
import json
import random
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import quote_from_bytes

from leveret.management.api import routes as all_routes
from leveret.management.api_route import ApiRoute
from leveret.management.rights import USER
from leveret.management.routes.node.identity import node_name
from support.hostile.hostile_values import (
    ARGUMENTS,
    HUGE_TEXTS,
    JSON_VALUES,
    PATH_NAMES,
    QUERY_VALUES,
    RAW_JSON,
)

#: The default of each name in a path; for `{name}`, by the beginning of the route.  `prepare`
#: creates these objects.
NAMES: Final = {
    "vhost": "h", "user": "u", "name": "q", "queue": "q", "exchange": "e",
    "component": "vhost-limits",
    "id": "1", "pattern": "x", "consumer": "reader", "sink": "sink", "publisher": "p",
    "connection": "127.0.0.1:5 -> 127.0.0.1:5672", "channel": "127.0.0.1:5 -> 127.0.0.1:5672 (1)",
    "source": "e", "destination": "q", "kind": "q", "props": "~", "end": "source",
    "backup": "b", "path": "format",
    "port": "5672", "protocol": "amqp", "within": "1", "unit": "months", "password": "secret",
}  # fmt: skip

_NAMED: Final = {
    "/api/streams/": "s", "/api/exchanges/": "e", "/api/super-streams/": "parts",
    "/api/policies/": "p", "/api/operator-policies/": "p", "/api/parameters/": "limits",
    "/api/global-parameters/": "g",
}  # fmt: skip


def _name_of(path: str, name: str) -> str:
    """The valid value of a name in a path."""
    if name == "name":
        for start, value in _NAMED.items():
            if path.startswith(start):
                return value
    return NAMES[name]


_POLICY: Final = {
    "pattern": "^x", "definition": {"max-length": 5}, "priority": 1, "apply-to": "queues",
}  # fmt: skip
_ALL: Final = {"configure": ".*", "write": ".*", "read": ".*"}
_LIMITS: Final = {"max-connections": 5, "max-queues": 500}
_METADATA: Final = {
    "description": "d", "tags": ["a"], "default_queue_type": "classic", "strict_keys": False,
    "protected_from_deletion": False,
}  # fmt: skip
_DEFINITIONS: Final[dict[str, Any]] = {
    "vhosts": [{"name": "i", "metadata": _METADATA, "limits": _LIMITS, "description": "d",
    "tags": "a"}],
    "users": [
        {
            "name": "i", "password_hash": "", "hashing_algorithm": "rabbit_password_hashing_sha256",
            "tags": ["a"], "limits": {"max-channels": 5},
        },
        {"name": "j", "password": "secret", "tags": "a,b"},
    ],
    "permissions": [{"user": "u", "vhost": "h", **_ALL}],
    "topic_permissions": [
        {"user": "u", "vhost": "h", "exchange": "e", "write": ".*", "read": ".*"}
    ],
    "global_parameters": [{"name": "g", "value": {"any": [1]}}],
    "parameters": [
        {"vhost": "h", "component": "vhost-limits", "name": "limits", "value": _LIMITS},
        {"vhost": "h", "component": "operator_policy", "name": "o", "value": _POLICY},
        {"vhost": "h", "component": "shovel", "name": "s", "value": {"uri": "amqp://"}},
    ],
    "policies": [{"vhost": "h", "name": "p", **_POLICY}],
    "queues": [
        {
            "name": "iq", "vhost": "h", "durable": True, "auto_delete": False, "type": "classic",
            "arguments": {"x-max-length": 5}, "typed_arguments": "",
        }
    ],
    "exchanges": [
        {
            "name": "ie", "vhost": "h", "type": "topic", "durable": True, "auto_delete": False,
            "internal": False, "arguments": {"alternate-exchange": "e"},
        }
    ],
    "bindings": [
        {
            "source": "ie", "vhost": "h", "destination": "iq", "destination_type": "queue",
            "routing_key": "k", "arguments": {"x": 1},
        }
    ],
}  # fmt: skip


@dataclass(frozen=True)
class Example:
    """A valid request of a route: the names in its path, its body, its query."""

    names: dict[str, str]
    body: Any = None
    query: dict[str, str] | None = None


#: A valid request of each route that takes a body or a query, or other names than `NAMES`.
EXAMPLES: Final[dict[tuple[str, str], Example]] = {
    ("PUT", "/api/vhosts/{vhost}"): Example({"vhost": "new"}, _METADATA),
    ("PUT", "/api/vhost-limits/{vhost}"): Example({}, _LIMITS),
    ("PUT", "/api/vhost-limits/{vhost}/{name}"): Example({"name": "max-queues"}, {"value": 500}),
    ("PUT", "/api/users/{user}"): Example(
        {"user": "new"},
        {"password": "p", "tags": "a", "password_hash": None, "hashing_algorithm": ""},
    ),
    ("PUT", "/api/user-limits/{user}"): Example({}, {"max-connections": 5, "max-channels": 5}),
    ("PUT", "/api/user-limits/{user}/{name}"): Example({"name": "max-channels"}, {"value": 5}),
    ("PUT", "/api/permissions/{vhost}/{user}"): Example({}, _ALL),
    ("PUT", "/api/topic-permissions/{vhost}/{user}"): Example(
        {}, {"exchange": "e", "write": ".*", "read": ".*"}
    ),
    ("PUT", "/api/policies/{vhost}/{name}"): Example({"name": "p"}, _POLICY),
    ("PUT", "/api/operator-policies/{vhost}/{name}"): Example({"name": "p"}, _POLICY),
    ("PUT", "/api/parameters/{component}/{vhost}/{name}"): Example(
        {"name": "limits"}, {"value": _LIMITS}
    ),
    ("PUT", "/api/global-parameters/{name}"): Example({"name": "g"}, {"value": {"any": [1, "x"]}}),
    ("GET", "/metrics"): Example({}, query={"prefix": "rabbitmq_"}),
    ("GET", "/metrics/per-object"): Example({}, query={"prefix": "rabbitmq"}),
    ("GET", "/metrics/detailed"): Example(
        {}, query={"prefix": "r", "family": "queue_metrics", "vhost": "/"}
    ),
    ("GET", "/metrics/memory-breakdown"): Example({}, query={"prefix": "m"}),
    ("PUT", "/api/feature-flags/{name}/enable"): Example({"name": "stream_queue"}, {}),
    ("POST", "/api/rebalance/queues"): Example({}, {}),
    ("POST", "/api/vhosts/{vhost}/start/{name}"): Example({"name": node_name()}, {}),
    ("POST", "/api/all-configuration"): Example({}, _DEFINITIONS),
    ("POST", "/api/definitions"): Example({}, _DEFINITIONS),
    ("POST", "/api/definitions/{vhost}"): Example(
        {},
        {
            name: [{key: value for key, value in row.items() if key != "vhost"} for row in rows]
            for name, rows in _DEFINITIONS.items()
            if name in ("parameters", "policies", "queues", "exchanges", "bindings")
        },
    ),
    ("POST", "/api/queues/{vhost}/{name}/rewind"): Example({"name": "kept"}, {"timestamp": 5}),
    ("POST", "/api/queues/{vhost}/{name}/browse"): Example(
        {},
        {
            "count": 5, "after": -1, "position": 0, "routing-key": "#", "headers": {"x": 1},
            "truncate": 9,
        },
    ),
    ("PUT", "/api/super-streams/{vhost}/{name}"): Example(
        {"name": "parts"}, {"partitions": 3, "arguments": {"x-max-age": "1D"}}
    ),
    ("PUT", "/api/streams/{vhost}/{name}/consumers/{consumer}"): Example(
        {"name": "s"}, {"offset": 0}
    ),
    ("POST", "/api/backup"): Example({}, {}),
    ("POST", "/api/backups"): Example({}, {}),
    ("GET", "/api/backups/{backup}/files/{path}"): Example({}, query={"offset": "5"}),
    ("POST", "/api/login"): Example({}, {}),
    ("POST", "/api/logout"): Example({}, {}),
    ("PUT", "/api/queues/{vhost}/{name}"): Example(
        {"name": "other"}, {"durable": True, "auto_delete": False, "arguments": {"x-max-length": 5}}
    ),
    ("POST", "/api/queues/{vhost}/{name}/actions"): Example({}, {"action": "sync"}),
    ("POST", "/api/queues/{vhost}/{name}/get"): Example(
        {}, {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto", "truncate": 5}
    ),
    ("POST", "/api/queues/{vhost}/{name}/move"): Example(
        {}, {"to": "kept", "count": 1, "reason": "rejected", "queue": "q"}
    ),
    ("PUT", "/api/exchanges/{vhost}/{name}"): Example(
        {"name": "f"},
        {
            "type": "fanout", "durable": True, "auto_delete": False, "internal": False,
            "arguments": {"alternate-exchange": "e"},
        },
    ),
    ("DELETE", "/api/exchanges/{vhost}/{name}"): Example({}, None, {"if-unused": "false"}),
    ("POST", "/api/exchanges/{vhost}/{name}/publish"): Example(
        {},
        {
            "routing_key": "q", "payload": "x", "payload_encoding": "string",
            "properties": {"headers": {"x": 1}, "delivery_mode": 2, "timestamp": 5},
        },
    ),
    ("POST", "/api/exchanges/{vhost}/{name}/route"): Example(
        {}, {"routing_key": "q", "headers": {"x": 1}}
    ),
    ("POST", "/api/bindings/{vhost}/e/{source}/{kind}/{destination}"): Example(
        {}, {"routing_key": "", "arguments": {}}
    ),
    ("POST", "/api/users/bulk-delete"): Example({}, {"users": ["nobody"]}),
    ("POST", "/api/vhosts/{vhost}/deletion/protection"): Example({}, {}),
    ("PUT", "/api/cluster-name"): Example({}, {"name": "rabbits"}),
    ("GET", "/api/nodes/{name}"): Example({}, None, {"memory": "true"}),
    ("DELETE", "/api/queues/{vhost}/{name}"): Example(
        {}, None, {"if-unused": "true", "if-empty": "false"}
    ),
    ("DELETE", "/api/super-streams/{vhost}/{name}"): Example(
        {"name": "parts"}, None, {"if-unused": "true", "if-empty": "true"}
    ),
    ("DELETE", "/api/sinks/{vhost}/{sink}"): Example({}, None, {"destination": "d"}),
    ("PUT", "/api/sinks/{vhost}/{sink}/owner/{user}"): Example({}, {}, {"destination": "d"}),
    ("PUT", "/api/publishers/{vhost}/{queue}/{publisher}/owner/{user}"): Example({}, {}),
    ("PUT", "/api/streams/{vhost}/{name}/consumers/{consumer}/owner/{user}"): Example(
        {"name": "s"}, {}
    ),
    ("GET", "/api/streams/{vhost}/{name}/offset"): Example(
        {"name": "s"}, None, {"timestamp": "5", "before": "5"}
    ),
    ("GET", "/api/streams/{vhost}/{name}"): Example(
        {"name": "s"}, None, {"run": "r", "query_id": "q", "query_name": "n", "position": "5"}
    ),
    ("GET", "/api/streams/{vhost}/{name}/chunks"): Example(
        {"name": "s"}, None, {"offset": "0", "end": "5", "wait_ms": "0", "max_bytes": "1000"}
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Request:
    """One request; `path` is as on the wire, with its query; `make` makes the body."""

    route: tuple[str, str]
    path: bytes
    make: Callable[[], bytes | None]
    what: str

    @property
    def body(self) -> bytes | None:
        return self.make()

    @property
    def method(self) -> str:
        return self.route[0]

    def __str__(self) -> str:
        body = b"" if self.body is None else self.body[:200]
        return f"{self.method} {self.path[:200]!r} {body!r} ({self.what})"


def routes(users: bool = False) -> list[ApiRoute]:
    """All routes, or those that any user may request."""
    found = all_routes()
    if not users:
        return found
    return [one for one in found if one.right is USER]


def key_of(route: ApiRoute) -> tuple[str, str]:
    return route.method, route.path


# -- what handlers read ----------------------------------------------------------------------------


#: The ways in which a handler reads a field of the body, and a query parameter, by name.
_BODY: Final = (
    r"(text|number|table)_of\((body|await object_of\(request\)), '([a-z_-]+)'",
    r"(body|\(await object_of\(request\)\))(\.get\(|\[)'([a-z_-]+)'",
    r"()()'([a-z_-]+)' in body\b",
)
_QUERY: Final = (
    r"()number_of_query\((request), '([a-z_-]+)'",
    r"()request\.query(\.get\(|\[)'([a-z_-]+)'",
    r"()()'([a-z_-]+)' in request\.query",
)

#: A comprehension over names of fields.
_SEVERAL: Final = r"for \w+ in \(([^()]*)\)"


def _source_of(handler: Any) -> str:
    """The normalized source of a handler and of the functions of its module that it calls."""
    module = inspect.getmodule(handler)
    texts: list[str] = []
    waiting, seen = [handler], {handler}
    while waiting:
        tree = ast.parse(textwrap.dedent(inspect.getsource(waiting.pop())))
        texts.append(ast.unparse(tree))
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            called = getattr(module, node.func.id, None)
            own = inspect.isfunction(called) and inspect.getmodule(called) is module
            if own and called not in seen:
                seen.add(called)
                waiting.append(called)
    return "\n".join(texts)


def read_by(route: ApiRoute) -> tuple[set[str], set[str]]:
    """The names of the body's fields, and of the query's, that a handler reads."""
    source = _source_of(route.handler)
    fields = {found[2] for pattern in _BODY for found in re.findall(pattern, source)}
    query = {found[2] for pattern in _QUERY for found in re.findall(pattern, source)}
    for line in source.splitlines():
        for names in re.findall(_SEVERAL, line):
            shown = set(re.findall(r"'([a-z_-]+)'", names))
            if "request.query" in line:
                query |= shown
            elif re.search(r"\bbody\b", line):
                fields |= shown
    return fields, query


def uncovered() -> list[str]:
    """The routes, fields and query parameters without an example."""
    missing: list[str] = []
    known = set()
    for route in routes() + routes(users=True):
        key = key_of(route)
        known.add(key)
        example = EXAMPLES.get(key, Example({}))
        fields, query = read_by(route)
        body = example.body if isinstance(example.body, dict) else {}
        if route.method in ("PUT", "POST") and example.body is None:
            missing.append(f"{key}: a body")
        missing += [f"{key}: the field {name}" for name in fields - set(body)]
        missing += [f"{key}: ?{name}=" for name in query - set(example.query or {})]
        for name in re.findall(r"\{(\w+)\}", route.path):
            if name not in example.names and name not in NAMES:
                missing.append(f"{key}: the name {name}")
    missing += [f"{key}: there is no such route" for key in EXAMPLES if key not in known]
    return missing


# -- cases -----------------------------------------------------------------------------------------


def good(route: ApiRoute) -> Request:
    """The valid request of a route."""
    return _request(route, {}, None, "good")


def _request(
    route: ApiRoute,
    names: dict[str, bytes],
    make: Callable[[], bytes | None] | None,
    what: str,
    query: dict[str, str] | None = None,
) -> Request:
    example = EXAMPLES.get(key_of(route), Example({}))
    path = route.path
    for name in re.findall(r"\{(\w+)\}", path):
        value = names.get(name, (example.names.get(name) or _name_of(route.path, name)).encode())
        path = path.replace("{" + name + "}", quote_from_bytes(value, safe=""))
    asked = example.query if query is None else query
    if asked:
        path += "?" + "&".join(f"{name}={value}" for name, value in asked.items())
    if make is None:
        make = partial(_example_body, key_of(route))
    return Request(key_of(route), path.encode(), make, what)


def _example_body(key: tuple[str, str]) -> bytes | None:
    body = EXAMPLES.get(key, Example({})).body
    return None if body is None else encoded(body)


def _same(raw: bytes) -> bytes:
    return raw


def _places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places in a JSON value, outermost first."""
    if place:
        yield place
    if isinstance(value, dict):
        for key in value:
            yield from _places(value[key], (*place, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _places(inner, (*place, index))


def _changed(body: Any, place: tuple[Any, ...], value: Any) -> Any:
    """A copy of a body with another value at a place."""
    made = copy.deepcopy(body)
    inner = made
    for step in place[:-1]:
        inner = inner[step]
    inner[place[-1]] = value
    return made


def encoded(value: Any) -> bytes:
    """A value as JSON, of any depth and with numbers of any length."""
    return json.dumps(value).encode()


def _with(body: Any, place: tuple[Any, ...], value: Any) -> bytes:
    return encoded(_changed(body, place, value))


def _without(body: Any, place: tuple[Any, ...]) -> bytes:
    """A body with one field missing."""
    made = copy.deepcopy(body)
    inner = made
    for step in place[:-1]:
        inner = inner[step]
    del inner[place[-1]]
    return encoded(made)


def _bodies(body: Any) -> Iterator[tuple[Callable[[], bytes], str]]:
    """Functions that make a valid body with one hostile place."""
    for place in _places(body):
        for number, value in enumerate(JSON_VALUES):
            yield partial(_with, body, place, value), f"{place} value {number}"
        if isinstance(place[-1], str):
            yield partial(_without, body, place), f"without {place}"
        if place[-1] == "arguments":
            for name in ARGUMENTS:
                for number, value in enumerate(JSON_VALUES[:45]):
                    yield partial(_with, body, place, {name: value}), f"{place} {name} {number}"
    if isinstance(body, dict):
        yield partial(encoded, {**body, "unknown": 1}), "an unknown field"
        many = {f"k{number}": number for number in range(5_000)}
        yield partial(encoded, {**body, **many}), "many fields"
        for name in body:
            for text in HUGE_TEXTS:
                yield partial(encoded, {**body, name: text}), f"a huge {name}"


def cases(users: bool = False) -> dict[tuple[str, str], list[Request]]:
    """All cases with one hostile place, by route."""
    found: dict[tuple[str, str], list[Request]] = {}
    for route in routes(users):
        example = EXAMPLES.get(key_of(route), Example({}))
        made = found.setdefault(key_of(route), [])
        if route.method != "DELETE":
            made.append(good(route))
        for name in re.findall(r"\{(\w+)\}", route.path):
            for number, value in enumerate(PATH_NAMES):
                made.append(_request(route, {name: value}, None, f"{name} {number}"))
        for name in example.query or {}:
            for asked in QUERY_VALUES:
                query = {**(example.query or {}), name: asked}
                made.append(_request(route, {}, None, f"?{name}", query))
                made.append(_request(route, {}, None, f"?{name} alone", {name: asked}))
        if example.body is None:
            continue
        for raw in RAW_JSON:
            made.append(_request(route, {}, partial(_same, raw), "raw"))
        for value in JSON_VALUES[:60]:
            made.append(_request(route, {}, partial(encoded, value), "a whole body"))
        for make, what in _bodies(example.body):
            made.append(_request(route, {}, make, what))
    return found


def _several(body: Any, seed: int) -> bytes:
    """A body with up to three places made hostile."""
    random_ = random.Random(seed)
    for _ in range(random_.randint(1, 3)):
        if places := list(_places(body)):
            body = _changed(body, random_.choice(places), random_.choice(JSON_VALUES))
    return encoded(body)


def mixed(random_: random.Random, count: int, users: bool = False) -> list[Request]:
    """Cases with several hostile places, of routes that take a body."""
    writable = [route for route in routes(users) if key_of(route) in EXAMPLES]
    made: list[Request] = []
    while len(made) < count:
        route = random_.choice(writable)
        example = EXAMPLES[key_of(route)]
        names = {
            name: random_.choice(PATH_NAMES)
            for name in re.findall(r"\{(\w+)\}", route.path)
            if random_.random() < 0.3
        }
        make = None
        if example.body is not None:
            make = partial(_several, example.body, random_.getrandbits(32))
        made.append(_request(route, names, make, "mixed"))
    return made
