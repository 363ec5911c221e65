"""Requests made from the API's own description, by every kind of user, and their answers.

Each operation of the document gets hostile paths, queries and bodies.  Every answer must be one
that the document declares, and none may report a failure of the broker.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_from_bytes

from hypothesis import strategies as st

from support.brokers.broker_process import BrokerProcess
from support.hostile.hostile_values import (
    ARGUMENTS,
    INTEGERS,
    JSON_VALUES,
    PATH_NAMES,
    RAW_JSON,
    TEXTS,
)
from support.http.http_api import ANSWER_SECONDS_MAX, Api

_PART: Final = re.compile(r"\{(\w+)\}")

#: The kinds of users; each has the tag of its name, except for the ones below.
KINDS: Final = (
    "administrator",
    "monitoring",
    "policymaker",
    "management",
    "none",
    "elsewhere",
    "wrong",
    "nobody",
)

#: A user who may not enter the vhost; one with a wrong password; and one without credentials.
ELSEWHERE: Final = "elsewhere"
WRONG: Final = "wrong"
NOBODY: Final = "nobody"

_PASSWORD: Final = "described"

#: Names of existing objects, so that hostile places after a valid one are reached.
_THERE: Final = {
    "vhost": (b"/", b"there"),
    "name": (b"q", b"s", b"x", b"amq.direct", b"p", b"max-queues"),
    "queue": (b"q", b"s"),
    "source": (b"x",),
    "destination": (b"q", b"s"),
    "exchange": (b"x",),
    "user": tuple(kind.encode() for kind in KINDS),
    "kind": (b"q", b"e"),
    "end": (b"source", b"destination"),
    "component": (b"vhost-limits", b"operator_policy", b"shovel"),
    "props": (b"~", b"k"),
    "within": (b"1",),
    "unit": (b"days", b"years"),
    "port": (b"5672", b"99999"),
    "protocol": (b"amqp", b"http"),
}

#: The objects that exist for all requests.
_DEFINITIONS: Final[dict[str, Any]] = {
    "vhosts": [{"name": "/"}, {"name": "there"}],
    "permissions": [
        {"user": kind, "vhost": vhost, "configure": ".*", "write": ".*", "read": ".*"}
        for kind in KINDS[:5]
        for vhost in ("/", "there")
    ],
    "queues": [
        {"name": name, "vhost": vhost, "durable": True, "auto_delete": False, "arguments": given}
        for name, given in (("q", {}), ("s", {"x-queue-type": "stream"}))
        for vhost in ("/", "there")
    ],
    "exchanges": [
        {
            "name": "x",
            "vhost": vhost,
            "type": "topic",
            "durable": True,
            "auto_delete": False,
            "internal": False,
            "arguments": {},
        }
        for vhost in ("/", "there")
    ],
}


@dataclass(frozen=True)
class Operation:
    """One operation of the document, with the statuses that it declares."""

    method: str
    path: str
    fields: tuple[str, ...]
    statuses: frozenset[str]

    def declares(self, status: int) -> bool:
        """Return whether the document declares a status."""
        return not self.statuses.isdisjoint((str(status), f"{status // 100}XX"))


@dataclass(frozen=True)
class Asked:
    """One request; the target is as on the wire."""

    operation: Operation
    kind: str
    target: str
    body: bytes | None
    coding: str = ""

    def __str__(self) -> str:
        body = None if self.body is None else self.body[:200]
        return f"{self.kind}: {self.operation.method} {self.target[:300]} {body!r} {self.coding}"


def operations(document: Any) -> list[Operation]:
    """Return the operations of a document."""
    found: list[Operation] = []
    for path, entry in document["paths"].items():
        for method, one in entry.items():
            if method == "parameters":
                continue
            content = one.get("requestBody", {}).get("content", {})
            schema = content.get("application/json", {}).get("schema", {})
            fields = tuple(schema.get("properties", ()))
            statuses = frozenset(one["responses"])
            found.append(Operation(method.upper(), path, fields, statuses))
    return found


_SCALARS: Final = st.sampled_from([None, True, False, *INTEGERS, *TEXTS]) | st.floats() | st.text()

_JSON: Final = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
) | st.sampled_from(JSON_VALUES)

_ARGUMENTS: Final = st.dictionaries(
    st.sampled_from(sorted(ARGUMENTS)), _JSON | st.sampled_from(list(ARGUMENTS.values())),
    max_size=2,
)  # fmt: skip

#: Names of query parameters: those read by lists and handlers, and others.
_QUERY_NAMES: Final = (
    "page", "page_size", "name", "use_regex", "sort", "sort_reverse", "columns", "pagination",
    "msg_rates_age", "msg_rates_incr", "lengths_age", "lengths_incr", "node_stats_age",
    "node_stats_incr", "if-unused", "if-empty",
    "prefix", "family", "vhost", "destination", "offset", "end", "before", "timestamp", "memory",
    "lines", "max_bytes", "dry_run", "%00", "\u202e",
)  # fmt: skip

_QUERY_VALUES: Final = st.sampled_from(
    ["", "0", "1", "-1", "500", "true", "x", "messages", "9" * 9, "9" * 19, "9" * 5_000, "NaN", "("]
) | st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def targets(draw: st.DrawFn, path: str) -> str:
    """Draw the target of a request: names in the path, some of them existing, and a query."""
    target = path
    for name in _PART.findall(path):
        there = _THERE.get(name, (b"q",))
        value = draw(st.sampled_from(there) | st.sampled_from(PATH_NAMES) | st.binary(min_size=1))
        target = target.replace("{" + name + "}", quote_from_bytes(value, safe=""), 1)
    query = draw(st.lists(st.tuples(st.sampled_from(_QUERY_NAMES), _QUERY_VALUES), max_size=3))
    if query:
        pairs = [(quote_from_bytes(n.encode()), quote_from_bytes(v.encode())) for n, v in query]
        target += "?" + "&".join(f"{name}={value}" for name, value in pairs)
    return target


@st.composite
def bodies(draw: st.DrawFn, fields: tuple[str, ...]) -> bytes:
    """Draw a body: one with the fields of the operation, or one that is not JSON."""
    if draw(st.integers(0, 4)) == 0:
        return draw(st.sampled_from(RAW_JSON) | st.binary(max_size=40))
    values = {
        name: draw(_ARGUMENTS if name == "arguments" and draw(st.booleans()) else _JSON)
        for name in fields
        if draw(st.integers(0, 3))
    }
    if draw(st.integers(0, 5)) == 0:
        values[draw(st.text(max_size=10))] = draw(_JSON)
    return json.dumps(draw(_JSON) if draw(st.integers(0, 9)) == 0 else values).encode()


@st.composite
def requests(draw: st.DrawFn, operation: Operation, kind: str) -> Asked:
    """Draw a request of an operation by a kind of user."""
    body = None
    if operation.method in ("PUT", "POST") or draw(st.integers(0, 9)) == 0:
        body = draw(bodies(operation.fields))
    coding = draw(st.sampled_from([""] * 9 + ["gzip"]))
    return Asked(operation, kind, draw(targets(operation.path)), body, coding)


def plain(random_: random.Random, operation: Operation, kind: str) -> Asked:
    """Return a request with existing names and one hostile value in the body."""
    target = operation.path
    for name in _PART.findall(target):
        value = random_.choice(_THERE.get(name, (b"q",)))
        target = target.replace("{" + name + "}", quote_from_bytes(value, safe=""), 1)
    body = None
    if operation.method in ("PUT", "POST"):
        fields = operation.fields
        hostile = {random_.choice(fields): random_.choice(JSON_VALUES)} if fields else {}
        body = json.dumps(hostile).encode()
    return Asked(operation, kind, target, body)


class Described:
    """A broker and its document; each request finds the same objects."""

    def __init__(self, broker: BrokerProcess) -> None:
        self._broker = broker
        self._unix = Api(broker.data_dir / "management.sock")
        port = int(broker.expect_line("listening on http://").rpartition(":")[2])
        self._users = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)
        status, document, _ = self._unix.answer("/api/openapi.json")
        assert status == 200
        #: Routes served only on the Unix socket answer 404 here.
        self.operations = operations(document)
        self._definitions = json.dumps({**_DEFINITIONS, "users": self._hashed()}).encode()
        self.prepare()

    def _hashed(self) -> list[dict[str, Any]]:
        """Return all users with their password hashes, which are computed once."""
        for kind in KINDS[:-1]:
            tags = "" if kind in ("none", ELSEWHERE, WRONG) else kind
            said = {"password": _PASSWORD, "tags": tags}
            assert self._unix.ask("PUT", f"/api/users/{kind}", said)[0] in (201, 204)
        _, found = self._unix.ask("GET", "/api/users")
        assert isinstance(found, list)
        return [user for user in found if user["name"] in KINDS]

    def prepare(self) -> None:
        """Create all missing objects again."""
        self._unix.request("POST", "/api/definitions", self._definitions)
        answer = self._unix.getresponse()
        said = answer.read()
        assert answer.status in (200, 204), said

    def ask(self, asked: Asked) -> tuple[int, bytes]:
        """Return the answer to a request, and undo its changes."""
        operation = asked.operation
        headers = {}
        if asked.kind != NOBODY:
            password = "no" if asked.kind == WRONG else _PASSWORD
            raw = f"{asked.kind}:{password}".encode()
            headers["Authorization"] = f"Basic {base64.b64encode(raw).decode()}"
        if asked.coding:
            headers["Content-Encoding"] = asked.coding
        for again in (False, True):
            try:
                self._users.request(operation.method, asked.target, asked.body, headers)
                answer = self._users.getresponse()
                said = answer.read()
                break
            except (ConnectionError, http.client.RemoteDisconnected):
                # The previous request was refused with an unread body.
                self._users.close()
                if again:
                    raise
        if operation.method != "GET" and answer.status < 300:
            self.prepare()
        return answer.status, said

    def close(self) -> None:
        """Close both connections."""
        self._unix.close()
        self._users.close()


@contextlib.contextmanager
def described(directory: Path) -> Iterator[Described]:
    """Yield a broker process for such requests."""
    settings = {"login_failure_delay_ms": "0", "http_port": "0", "http_backup": "off"}
    with BrokerProcess(directory / "data", settings=settings) as broker:
        asking = Described(broker)
        try:
            yield asking
        finally:
            asking.close()
