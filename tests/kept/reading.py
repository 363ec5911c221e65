"""Reading all that a broker holds, in a form that a manifest can keep and a later build be held to.

`look` takes nothing away; `drain` consumes every queue and reads every stream to its end.  Fields
and headers that a later build adds are none of the manifest's business: `differences` compares
what the manifest names.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from typing import Any, Final
from urllib.parse import quote

from kept.declared import VHOSTS
from kept.filling import DUE, uri_of
from leveret.client import BasicProperties, Message
from leveret.client.blocking import Channel, connect
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api

#: A queue with more messages is kept as a digest of all, and its first and last one.
WHOLE_MAX: Final = 30

#: How long a message may take that must come, on a busy machine.
PATIENCE_SECONDS: Final = 120.0

PREFETCH: Final = 100

#: The fields by which rows are told apart, by what they are rows of.
KEYS: Final = (
    "vhost", "user", "component", "name", "exchange", "source", "destination",
    "destination_type", "routing_key", "publisher", "sink", "id",
)  # fmt: skip

#: What is kept of each kind of row; what else a build tells of it may change from day to day.
QUEUE_FIELDS: Final = (
    "vhost", "name", "type", "durable", "auto_delete", "arguments", "policy", "operator_policy",
    "effective_policy_definition", "messages_ready", "messages_unacknowledged",
    "messages_retained", "message_bytes_ready",
)  # fmt: skip
STREAM_FIELDS: Final = ("vhost", "name", "first_offset", "next_offset", "messages", "bytes")
READER_FIELDS: Final = ("name", "offset", "lag")
PUBLISHER_FIELDS: Final = ("publisher", "publishing_id")
SINK_FIELDS: Final = ("sink", "vhost", "batch", "releasing", "messages")
DELAYED_FIELDS: Final = ("id", "due", "timestamp", "exchange", "routing_key", "bytes")

#: The argument of staging queues.
STAGING: Final = "x-staging-sink"

#: How often a broker is asked for what must come.
PAUSE: Final = threading.Event()
PAUSE_SECONDS: Final = 0.05

Row = dict[str, Any]


# -- looking ---------------------------------------------------------------------------------------


class Looker:
    """Asks the HTTP API of a running broker."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def get(self, *parts: str) -> Any:
        """Return the JSON at a path, given by its parts."""
        path = "/api/" + "/".join(quote(part, safe="") for part in parts)
        status, found, _ = self._api.answer(path)
        assert status == 200, (path, status, found)
        return found

    def rows(self, fields: Iterable[str], *parts: str) -> list[Row]:
        """Return these fields of the rows at a path, in the order of their keys."""
        names = list(fields)
        return sorted_rows([{name: row[name] for name in names} for row in self.get(*parts)])


def look(broker: BrokerProcess) -> Row:
    """Return what the HTTP API tells of a broker, without what only a moment holds."""
    with closing(Api(broker.data_dir / "management.sock")) as connection:
        api = Looker(connection)
        found: Row = {
            "definitions": {
                section: _without_staging(sorted_rows(rows))
                for section, rows in api.get("definitions").items()
                if isinstance(rows, list)
            },
            "queues": _without_staging(api.rows(QUEUE_FIELDS, "queues")),
            "user_limits": sorted_rows(api.get("user-limits")),
            "vhost_limits": sorted_rows(api.get("vhost-limits")),
        }
        of_vhosts = {vhost: _of_vhost(api, vhost, found["queues"]) for vhost in VHOSTS}
    return found | {"vhosts": of_vhosts}


def _of_vhost(api: Looker, vhost: str, queues: list[Row]) -> Row:
    """Return what there is in a vhost beside its definitions and queues."""
    streams = api.rows(STREAM_FIELDS, "streams", vhost)
    publishers = {
        queue["name"]: api.rows(PUBLISHER_FIELDS, "publishers", vhost, queue["name"])
        for queue in queues
        if queue["vhost"] == vhost
    }
    delayed = {
        row["name"]: api.rows(DELAYED_FIELDS, "exchanges", vhost, row["name"], "delayed")
        for row in api.get("exchanges", vhost)
        if row["type"] == "x-delayed-message"
    }
    return {
        "streams": streams,
        "readers": {
            row["name"]: api.rows(READER_FIELDS, "streams", vhost, row["name"], "consumers")
            for row in streams
        },
        "publishers": {name: rows for name, rows in publishers.items() if rows},
        "sinks": api.rows(SINK_FIELDS, "sinks", vhost),
        "delayed": delayed,
        "super_streams": sorted_rows(api.get("super-streams", vhost)),
    }


def _without_staging(rows: list[Row]) -> list[Row]:
    """Return rows without those of staging queues, which are a sink's own business."""
    return [row for row in rows if STAGING not in (row.get("arguments") or {})]


def sorted_rows(rows: Iterable[Row]) -> list[Row]:
    """Return rows in the order of what tells them apart."""
    return sorted(rows, key=key_of)


def key_of(row: Mapping[str, Any]) -> str:
    """Return what tells a row from the others of its kind."""
    return json.dumps([row.get(name) for name in KEYS])


def await_due(broker: BrokerProcess) -> None:
    """Return when the messages are dead or routed whose time came while no broker ran."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with connect(uri_of(broker, "/")) as connection:
        channel = connection.channel()
        for queue, count in DUE.items():
            while channel.queue_declare(queue, passive=True).message_count < count:
                assert time.monotonic() < deadline, f"{count} messages must come to {queue!r}"
                PAUSE.wait(PAUSE_SECONDS)


# -- taking ----------------------------------------------------------------------------------------


def drain(broker: BrokerProcess, queues: Iterable[Row]) -> dict[str, Row]:
    """Consume all queues that were looked at, read all streams; return what came of each."""
    found: dict[str, Row] = {}
    connections = {vhost: connect(uri_of(broker, vhost)) for vhost in VHOSTS}
    for queue in queues:
        channel = connections[queue["vhost"]].channel()
        name, count = queue["name"], queue["messages_ready"]
        messages = take(channel, name, count, is_stream=queue["type"] == "stream")
        found[f"{queue['vhost']} {name}"] = summary([record(message) for message in messages])
        channel.close()
    for connection in connections.values():
        connection.close()
    return found


def take(channel: Channel, queue: str, count: int, *, is_stream: bool = False) -> list[Message]:
    """Consume and ack so many messages; those of a stream from its first one."""
    messages: list[Message] = []
    if not count:
        return messages
    channel.qos(prefetch_count=PREFETCH)
    wish = {"x-stream-offset": "first"} if is_stream else {}
    patience = PATIENCE_SECONDS
    with channel.consume(queue, arguments=wish, inactivity_timeout=patience) as consumer:
        for message in consumer:
            message.ack()
            messages.append(message)
            if len(messages) == count:
                break
    return messages


def record(message: Message) -> Row:
    """Return a message as JSON; how often it came back stands in `x-delivery-count`.

    The builds of 06a8cc1's time counted all returns there, which are in `x-acquired-count` now.
    """
    properties = message.properties
    headers = dict(properties.headers or {})
    if "x-acquired-count" in headers:
        headers["x-delivery-count"] = headers.pop("x-acquired-count")
    return {
        "exchange": message.exchange,
        "routing_key": message.routing_key,
        "redelivered": message.redelivered,
        "properties": {
            name: plain(value)
            for name in BasicProperties.FIELDS
            if name != "headers" and (value := getattr(properties, name)) is not None
        },
        "headers": {name: _header(name, value) for name, value in headers.items()},
        "body": message.body.decode("latin-1"),
    }


def _header(name: str, value: object) -> object:
    """Return a header as JSON; of deaths by age without when a broker came to see them."""
    made = plain(value)
    if name == "x-death" and isinstance(made, list):
        for death in made:
            if isinstance(death, dict) and death.get("reason") == "expired":
                death.pop("time", None)
    return made


def plain(value: object) -> object:
    """Return a value of a field table as JSON."""
    if isinstance(value, Mapping):
        return {str(name): plain(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return value if isinstance(value, str | int | float | None) else repr(value)


def summary(records: list[Row]) -> Row:
    """Return messages as a manifest keeps them: few of them whole, many as a digest."""
    made: Row = {
        "count": len(records),
        "bodies": bodies_digest(row["body"].encode("latin-1") for row in records),
    }
    if len(records) <= WHOLE_MAX:
        return made | {"messages": records}
    digest = hashlib.sha256()
    for row in records:
        # Headers whose names begin with `x-` are the broker's, which may add some.
        ours = {name: value for name, value in row["headers"].items() if name[:2] != "x-"}
        offsets = [row["headers"].get(f"x-stream-{name}") for name in ("offset", "timestamp")]
        stable = row | {"headers": ours, "stream": offsets}
        digest.update(json.dumps(stable, sort_keys=True).encode())
    return made | {"digest": digest.hexdigest(), "first": records[0], "last": records[-1]}


def bodies_digest(bodies: Iterable[bytes]) -> str:
    """Return a digest of bodies in their order."""
    digest = hashlib.sha256()
    for each in bodies:
        digest.update(len(each).to_bytes(4, "big") + each)
    return digest.hexdigest()


# -- comparing -------------------------------------------------------------------------------------


def differences(expected: object, found: object, place: str = "") -> list[str]:
    """Return where what was found differs from what a manifest names.

    Fields that a manifest does not name are fine; rows and messages must be as many.
    """
    if isinstance(expected, dict) and isinstance(found, dict):
        lines = [f"{place}/{name}: missing" for name in expected if name not in found]
        for name in expected.keys() & found.keys():
            lines += differences(expected[name], found[name], f"{place}/{name}")
        return sorted(lines)
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return [f"{place}: {len(found)} for {len(expected)}: {found!r} for {expected!r}"]
        pairs = zip(expected, found, strict=True)
        return [
            line
            for index, (one, other) in enumerate(pairs)
            for line in differences(one, other, f"{place}[{index}]")
        ]
    if isinstance(expected, bool) is isinstance(found, bool) and expected == found:
        return []
    return [f"{place}: {found!r} for {expected!r}"]
