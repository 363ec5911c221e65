"""The answers of the HTTP API of two brokers that hold the same: fields, their types and values.

One topology is made on each broker and used the same way, over AMQP and the API.  An answer is then
read field by field: a field is a path through objects, where `[]` stands for each element of an
array that has no names, and `[name]` for the one of that name.  What differs from run to run, or
says what a broker is made of, is compared by its type alone.

Invariants: a difference is a field that one broker has and the other has not, or a field that holds
another value, or one of another type; null is a type.
"""

from __future__ import annotations

import contextlib
import re
import time
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from differential.stage import Host
from leveret.client import BasicProperties
from leveret.client.blocking import connect

EXPECTED: Final = Path(__file__).parent / "answers.toml"

#: How long a broker may take to show what was done: RabbitMQ's figures are of every five seconds.
SHOWN_SECONDS_MAX: Final = 60.0

#: Fields, by the ends of their paths, whose values are of this run or of this broker.
VARYING: Final = re.compile(
    r"(\.|^)(rate|(channel|connection|queue)_(created|closed|declared|deleted)|uptime|memory|timestamp|connected_at|idle_since|host|port|name_of_client|node|"
    r"peer_port|os_pid|password_hash|cluster_name|value_of_cluster|fd_used|sockets_used|proc_used|"
    r"fd_total|sockets_total|proc_total|run_queue|reductions|recv_oct|recv_cnt|send_oct|send_cnt|"
    r"mem_\w+|disk_free\w*|io_\w+|\w+version\w*|product_name|rabbit_\w+|connection_name|"
    r"pid|leader|db_dir|processors|explanation|publish_seqno|"
    r"churn_rates\.\w+|listeners.*|contexts.*|exchange_types.*|product|platform|information|"
    r"copyright|enabled_plugins|original_cluster_name|channel_details\.name|db_dir|"
    r"(cluster|connections?|channels?|vhost-connections|nodes?|connection-channels)(\[\])?\.name|"
    r"cluster-name\.name|connection_details\.name|owner_pid_details\.name|consumer_(capacity|utilisation)|"
    r"context_switches)$"
)

#: Fields of connections that are of TLS alone.
OF_TLS: Final = re.compile(r"\.(ssl|peer_cert)_\w+$")

Ask = tuple[str, str]

#: What is asked for: the name that the expected differences call it by, and its path.
QUESTIONS: Final[tuple[Ask, ...]] = (
    ("overview", "/api/overview"),
    ("nodes", "/api/nodes"),
    ("node", "/api/nodes/{node}"),
    ("memory", "/api/nodes/{node}/memory"),
    ("cluster-name", "/api/cluster-name"),
    ("whoami", "/api/whoami"),
    ("auth", "/api/auth"),
    ("extensions", "/api/extensions"),
    ("vhosts", "/api/vhosts"),
    ("vhost", "/api/vhosts/v"),
    ("vhost-limits", "/api/vhost-limits"),
    ("vhost-limits-of", "/api/vhost-limits/v"),
    ("users", "/api/users"),
    ("user", "/api/users/u"),
    ("users-without", "/api/users/without-permissions"),
    ("user-limits", "/api/user-limits"),
    ("user-limits-of", "/api/user-limits/u"),
    ("permissions", "/api/permissions"),
    ("permission", "/api/permissions/v/u"),
    ("permissions-of", "/api/users/u/permissions"),
    ("permissions-in", "/api/vhosts/v/permissions"),
    ("topic-permissions", "/api/topic-permissions"),
    ("topic-permission", "/api/topic-permissions/v/u"),
    ("policies", "/api/policies"),
    ("policy", "/api/policies/v/p"),
    ("operator-policies", "/api/operator-policies"),
    ("operator-policy", "/api/operator-policies/v/o"),
    ("parameters", "/api/parameters"),
    ("parameters-of", "/api/parameters/vhost-limits/v/limits"),
    ("global-parameters", "/api/global-parameters"),
    ("exchanges", "/api/exchanges/v"),
    ("exchange", "/api/exchanges/v/x"),
    ("exchange-default", "/api/exchanges/v/amq.default"),
    ("exchange-sources", "/api/exchanges/v/x/bindings/source"),
    ("queues", "/api/queues/v"),
    ("queue", "/api/queues/v/q"),
    ("queue-quorum", "/api/queues/v/quorum"),
    ("queue-stream", "/api/queues/v/stream"),
    ("queue-exclusive", "/api/queues/v/exclusive"),
    ("queue-idle", "/api/queues/v/idle"),
    ("queue-bindings", "/api/queues/v/q/bindings"),
    ("queue-page", "/api/queues/v?page=1&page_size=2&name=q&columns=name,messages"),
    ("bindings", "/api/bindings/v"),
    ("binding", "/api/bindings/v/e/x/q/q/key"),
    ("binding-of-exchanges", "/api/bindings/v/e/x/e/y"),
    ("connections", "/api/connections"),
    ("connection", "/api/connections/{connection}"),
    ("connection-channels", "/api/connections/{connection}/channels"),
    ("vhost-connections", "/api/vhosts/v/connections"),
    ("channels", "/api/channels"),
    ("channel", "/api/channels/{channel}"),
    ("consumers", "/api/consumers/v"),
    ("definitions", "/api/definitions"),
    ("definitions-of", "/api/definitions/v"),
    ("feature-flags", "/api/feature-flags"),
    ("alarms", "/api/health/checks/alarms"),
    ("local-alarms", "/api/health/checks/local-alarms"),
    ("virtual-hosts", "/api/health/checks/virtual-hosts"),
    ("quorum-critical", "/api/health/checks/node-is-quorum-critical"),
    ("mirror-critical", "/api/health/checks/node-is-mirror-sync-critical"),
    ("protocol-listener", "/api/health/checks/protocol-listener/amqp"),
    ("no-queue", "/api/queues/v/none"),
    ("no-vhost", "/api/queues/none"),
    ("no-path", "/api/none"),
    ("no-page", "/api/queues/v?page=99"),
    ("bad-page", "/api/queues/v?page=x"),
    # It makes a queue in RabbitMQ.
    ("aliveness", "/api/aliveness-test/v"),
    ("get", "POST /api/queues/v/q/get"),
    ("publish", "POST /api/exchanges/v/x/publish"),
)

BODIES: Final[Mapping[str, object]] = {
    "get": {"count": 1, "ackmode": "ack_requeue_true", "encoding": "auto"},
    "publish": {
        "properties": {}, "routing_key": "nowhere", "payload": "p", "payload_encoding": "string",
    },
}  # fmt: skip

#: How many queues there are then, and messages in the one that is used.
QUEUES: Final = 5
MESSAGES_LEFT: Final = 5

DEFINED: Final[tuple[tuple[str, str, object], ...]] = (
    ("PUT", "vhosts/v", {"description": "a vhost", "tags": "a,b"}),
    ("PUT", "permissions/v/guest", {"configure": ".*", "write": ".*", "read": ".*"}),
    ("PUT", "users/u", {"password": "secret", "tags": "monitoring,policymaker"}),
    ("PUT", "users/alone", {"password": "secret", "tags": ""}),
    ("PUT", "permissions/v/u", {"configure": "a", "write": "b", "read": "c"}),
    ("PUT", "topic-permissions/v/u", {"exchange": "amq.topic", "write": "w", "read": "r"}),
    ("PUT", "vhost-limits/v/max-queues", {"value": 100}),
    ("PUT", "user-limits/u/max-channels", {"value": 50}),
    ("PUT", "policies/v/p", {
        "pattern": "^q$", "definition": {"max-length": 1000}, "apply-to": "queues", "priority": 3,
    }),
    ("PUT", "operator-policies/v/o", {
        "pattern": "^q$", "definition": {"message-ttl": 3600000}, "apply-to": "queues",
    }),
    ("PUT", "exchanges/v/x", {"type": "direct", "durable": True}),
    ("PUT", "exchanges/v/y", {
        "type": "topic", "auto_delete": False, "internal": True,
        "arguments": {"alternate-exchange": "x"},
    }),
    ("PUT", "queues/v/q", {"durable": True, "arguments": {"x-max-priority": 3}}),
    ("PUT", "queues/v/idle", {"durable": False, "auto_delete": True}),
    ("PUT", "queues/v/quorum", {"durable": True, "arguments": {"x-queue-type": "quorum"}}),
    ("PUT", "queues/v/stream", {"durable": True, "arguments": {"x-queue-type": "stream"}}),
    ("POST", "bindings/v/e/x/q/q", {"routing_key": "key", "arguments": {}}),
    ("POST", "bindings/v/e/x/q/quorum", {"routing_key": "k2", "arguments": {"a": 1}}),
    ("POST", "bindings/v/e/x/e/y", {"routing_key": "", "arguments": {}}),
)  # fmt: skip


@contextlib.contextmanager
def used(host: Host) -> Iterator[dict[str, str]]:
    """Make the topology and use it; yield what the paths of the questions name."""
    for verb, path, body in DEFINED:
        status, answer = host.api(verb, f"/api/{path}", body)
        assert status in (201, 204), (host.name, path, status, answer)
    uri = host.uri.rpartition("/")[0] + "/v"
    with connect(uri, connection_name="used") as connection:
        channel = connection.channel()
        channel.queue_declare("exclusive", exclusive=True)
        channel.confirm_select()
        for number in range(6):
            channel.publish(b"12345", "x", "key", BasicProperties(delivery_mode=1 + number % 2))
        channel.publish(b"dropped", "x", "nowhere")
        channel.qos(3)
        consumer = channel.consume("q", consumer_tag="tag")
        channel.ack(next(iter(consumer)).delivery_tag)
        channel.get("idle", no_ack=True)
        yield _named(host)


def _named(host: Host) -> dict[str, str]:
    """Wait until the broker shows what was done; return the names of its parts."""
    until = time.monotonic() + SHOWN_SECONDS_MAX
    while not all((seen := _shown(host)).values()):
        assert time.monotonic() < until, seen
    _, channels = host.api("GET", "/api/channels", None)
    _, connections = host.api("GET", "/api/connections", None)
    _, nodes = host.api("GET", "/api/nodes", None)
    return {
        "node": nodes[0]["name"],
        "connection": quote(connections[0]["name"], safe=""),
        "channel": quote(channels[0]["name"], safe=""),
    }


def _shown(host: Host) -> dict[str, bool]:
    """Return which of the things that were done a broker shows."""
    _, queues = host.api("GET", "/api/queues/v", None)
    _, channels = host.api("GET", "/api/channels", None)
    _, connections = host.api("GET", "/api/connections", None)
    _, overview = host.api("GET", "/api/overview", None)
    by_name = {one["name"]: one for one in queues}
    done = {name: one.get("message_stats", {}) for name, one in by_name.items()}
    return {
        "queues": all("messages" in one for one in queues) and len(queues) == QUEUES,
        "acked": done["q"].get("ack") == 1 and by_name["q"].get("messages") == MESSAGES_LEFT,
        "got": done["idle"].get("get_empty") == 1,
        "channel": any(one.get("messages_unacknowledged") == 3 for one in channels),
        "connection": any(one.get("channels") == 1 for one in connections),
        "overview": overview.get("message_stats", {}).get("drop_unroutable") == 1,
    }


def asked(host: Host, names: Mapping[str, str]) -> dict[str, object]:
    """Return the fields of every answer of a broker, with the statuses."""
    found: dict[str, object] = {}
    for label, question in QUESTIONS:
        verb, _, path = question.rpartition(" ")
        status, answer = host.api(verb or "GET", path.format(**names), BODIES.get(label))
        found[f"{label}.(status)"] = status
        found.update(fields(answer, label))
    return found


def fields(value: Any, path: str) -> dict[str, object]:
    """Return the fields below a path: of a value that varies its type."""
    found: dict[str, object] = {}
    if isinstance(value, Mapping):
        found[path] = "{}"
        for name, inner in value.items():
            found.update(fields(inner, f"{path}.{name}"))
        return found
    if isinstance(value, list) and any(isinstance(one, dict) for one in value):
        for inner in value:
            found.update(fields(inner, f"{path}[{known_as(inner)}]"))
        return found
    if value == "" and OF_TLS.search(path):
        # RabbitMQ's lists have null or empty texts here, now these and now those.
        value = None
    shown: object = value
    if value is not None and VARYING.search(path):
        shown = f"<{'number' if isinstance(value, int | float) else type(value).__name__}>"
    elif isinstance(value, list):
        shown = tuple(sorted(map(str, value)))
    return {path: shown}


def known_as(row: Mapping[str, Any]) -> str:
    """Return what tells an element of an array from others on both brokers; nothing for some."""
    if "source" in row:
        return f"{row['source']}>{row['destination']}"
    if "configure" in row or "write" in row:
        return f"{row['user']}@{row['vhost']}" if "vhost" in row else str(row["user"])
    name = row.get("name", "")
    if "virtual_host" in row or "@" in name or "->" in name:
        return ""
    return str(name)


@dataclass(frozen=True)
class Difference:
    """A field that two answers do not share: `kind` is missing, added or other."""

    kind: str
    field: str
    theirs: object
    ours: object

    def __str__(self) -> str:
        return f"{self.kind}: {self.field}: RabbitMQ {self.theirs!r}, Leveret {self.ours!r}"


def differences(theirs: Mapping[str, object], ours: Mapping[str, object]) -> list[Difference]:
    """Return what differs; below a field that one side lacks nothing is compared."""
    found: list[Difference] = []
    gone = ""
    for field in sorted(theirs.keys() | ours.keys()):
        if gone and field.startswith((f"{gone}.", f"{gone}[")):
            continue
        gone = "" if field in ours and field in theirs else field
        if field not in ours:
            found.append(Difference("missing", field, theirs[field], None))
        elif field not in theirs:
            found.append(Difference("added", field, None, ours[field]))
        elif theirs[field] != ours[field]:
            found.append(Difference("other", field, theirs[field], ours[field]))
    return found


@dataclass(frozen=True)
class Reason:
    """Why some fields differ; each pattern is of one kind of difference."""

    text: str
    patterns: tuple[tuple[str, str], ...]


def expected() -> list[Reason]:
    """Return the reasons of the file, in its order."""
    found = []
    for row in tomllib.loads(EXPECTED.read_text())["difference"]:
        patterns = [
            (kind, one) for kind in ("missing", "added", "other") for one in row.get(kind, ())
        ]
        found.append(Reason(row["reason"], tuple(patterns)))
    return found


def fits(pattern: str, field: str) -> bool:
    """Return whether a pattern, in which `*` stands for anything, is of a field."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), field) is not None


def judge(found: list[Difference], reasons: list[Reason]) -> list[str]:
    """Return what is wrong: differences without a reason, and reasons without a difference."""
    patterns = [pattern for reason in reasons for pattern in reason.patterns]
    used_patterns: set[tuple[str, str]] = set()
    faults: list[str] = []
    for one in found:
        fitting = [
            (kind, pattern)
            for kind, pattern in patterns
            if kind == one.kind and fits(pattern, one.field)
        ]
        used_patterns.update(fitting)
        if not fitting:
            faults.append(str(one))
    gone = [
        f"expected, and gone: {kind} {p}" for kind, p in patterns if (kind, p) not in used_patterns
    ]
    return faults + gone
