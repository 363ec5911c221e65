"""The `list_…` commands: RabbitMQ's columns, filled from the HTTP API."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from leveret.cli import exits
from leveret.cli.ctl.asking import BrokerAddress
from leveret.cli.ctl.connections import id_of
from leveret.cli.printing import output
from leveret.cli.printing.rows import field, holds
from leveret.cli.rabbitmqctl.formats import print_rows
from leveret.cli.rabbitmqctl.options import CommandLine
from leveret.limits import SHORT_STRING_BYTES_MAX

Row = Mapping[str, object]


@dataclass(frozen=True)
class Listing:
    """A list: its path in the API, and its columns.

    In `path`, `{vhost}` stands for the command's vhost, and `{0}` for its argument.  `named` has
    the columns with another name in the API, or computed from its fields.
    """

    path: tuple[str, ...]
    columns: tuple[str, ...]
    banner: str
    named: Mapping[str, str | Callable[[Row], object]]
    #: Whether the user can select columns with arguments.
    choosing: bool = True
    more: tuple[str, ...] = ()


def _id(name: str) -> Callable[[Row], object]:
    return lambda row: id_of(str(field(row, name) or ""))


def _json(name: str) -> Callable[[Row], object]:
    return lambda row: json.dumps(row.get(name), ensure_ascii=False, separators=(",", ":"))


def _owner(row: Row) -> object:
    owner = field(row, "owner_pid_details.name")
    return "" if owner is None else id_of(str(owner))


def _said(text: object) -> Callable[[Row], object]:
    return lambda _row: text


_VHOST: Final = ("{vhost}",)

LISTS: Final = {
    "list_queues": Listing(
        ("queues", *_VHOST), ("name", "messages"), "Listing queues for vhost {vhost} ...",
        {
            "pid": "node", "leader": "node", "owner_pid": _owner,
            "messages_ready_ram": "messages_ready", "effective_policy": "policy",
            "slave_pids": _said([]), "members": lambda row: [row.get("node")],
            "online": lambda row: [row.get("node")],
        },
        more=("durable", "auto_delete", "arguments", "policy", "exclusive", "messages_ready",
              "messages_unacknowledged", "consumers", "consumer_utilisation", "memory", "state",
              "type", "message_bytes", "message_bytes_ready", "message_bytes_unacknowledged"),
    ),
    "list_exchanges": Listing(
        ("exchanges", *_VHOST), ("name", "type"), "Listing exchanges for vhost {vhost} ...", {},
        more=("durable", "auto_delete", "internal", "arguments", "policy"),
    ),
    "list_bindings": Listing(
        ("bindings", *_VHOST),
        ("source_name", "source_kind", "destination_name", "destination_kind", "routing_key",
         "arguments"),
        "Listing bindings for vhost {vhost}...",
        {
            "source_name": "source", "source_kind": _said("exchange"),
            "destination_name": "destination", "destination_kind": "destination_type",
        },
    ),
    "list_connections": Listing(
        ("connections",), ("user", "peer_host", "peer_port", "state"), "Listing connections ...",
        {
            "pid": _id("name"), "ssl": lambda row: bool(row.get("ssl")),
            "ssl_protocol": "ssl_protocol",
        },
        more=("name", "port", "host", "channels", "protocol", "auth_mechanism", "vhost", "timeout",
              "frame_max", "channel_max", "client_properties", "recv_oct", "recv_cnt", "send_oct",
              "send_cnt", "send_pend", "connected_at"),
    ),
    "list_channels": Listing(
        ("channels",), ("pid", "user", "consumer_count", "messages_unacknowledged"),
        "Listing channels ...",
        {
            "pid": _id("name"), "connection": _id("connection_details.name"),
        },
        more=("name", "number", "vhost", "transactional", "confirm", "messages_uncommitted",
              "acks_uncommitted", "messages_unconfirmed", "prefetch_count",
              "global_prefetch_count"),
    ),
    "list_consumers": Listing(
        ("consumers", *_VHOST),
        ("queue_name", "channel_pid", "consumer_tag", "ack_required", "prefetch_count", "active",
         "arguments"),
        "Listing consumers in vhost {vhost} ...",
        {"queue_name": "queue.name", "channel_pid": _id("channel_details.name")},
        more=("activity_status",),
    ),
    "list_users": Listing(
        ("users",), ("user", "tags"), "Listing users ...", {"user": "name"}, choosing=False,
    ),
    "list_permissions": Listing(
        ("vhosts", *_VHOST, "permissions"), ("user", "configure", "write", "read"),
        'Listing permissions for vhost "{vhost}" ...', {}, choosing=False,
    ),
    "list_user_permissions": Listing(
        ("users", "{0}", "permissions"), ("vhost", "configure", "write", "read"),
        'Listing permissions for user "{0}" ...', {}, choosing=False,
    ),
    "list_topic_permissions": Listing(
        ("vhosts", *_VHOST, "topic-permissions"), ("user", "exchange", "write", "read"),
        'Listing topic permissions for vhost "{vhost}" ...', {}, choosing=False,
    ),
    "list_user_topic_permissions": Listing(
        ("users", "{0}", "topic-permissions"), ("vhost", "exchange", "write", "read"),
        'Listing topic permissions for user "{0}" ...', {}, choosing=False,
    ),
    "list_vhosts": Listing(
        ("vhosts",), ("name",), "Listing vhosts ...", {"tracing": _said(False)},
        more=("description", "tags", "default_queue_type"),
    ),
    "list_policies": Listing(
        ("policies", *_VHOST), ("vhost", "name", "pattern", "apply-to", "definition", "priority"),
        'Listing policies for vhost "{vhost}" ...', {"definition": _json("definition")},
        choosing=False,
    ),
    "list_operator_policies": Listing(
        ("operator-policies", *_VHOST),
        ("vhost", "name", "pattern", "apply-to", "definition", "priority"),
        'Listing operator policy overrides for vhost "{vhost}" ...',
        {"definition": _json("definition")}, choosing=False,
    ),
    "list_parameters": Listing(
        ("parameters",), ("component", "name", "value"),
        'Listing runtime parameters for vhost "{vhost}" ...', {"value": _json("value")},
        choosing=False,
    ),
    "list_global_parameters": Listing(
        ("global-parameters",), ("name", "value"), "Listing global runtime parameters ...",
        {"value": _json("value")}, choosing=False,
    ),
    "list_vhost_limits": Listing(
        ("vhost-limits", *_VHOST), ("vhost", "limits"), 'Listing limits for vhost "{vhost}" ...',
        {"limits": _json("value")}, choosing=False,
    ),
    "list_user_limits": Listing(
        ("user-limits",), ("user", "limits"), "Listing limits of users ...",
        {"limits": _json("value")}, choosing=False,
    ),
}  # fmt: skip


def print_list(line: CommandLine, broker: BrokerAddress) -> int:
    """Request a list and print it.  Raises: Failure."""
    listing = LISTS[line.command]
    arguments = [word for word in line.arguments if word != "--"]
    takes_one = "{0}" in listing.path
    if takes_one and len(arguments) != 1:
        raise exits.Failure(f"{line.command} takes one argument", exits.USAGE)
    if arguments and not (takes_one or listing.choosing):
        raise exits.Failure(f"{line.command} takes no arguments", exits.USAGE)
    columns = tuple(arguments) if listing.choosing and arguments else listing.columns
    values = {"{vhost}": line.vhost, "{0}": arguments[0] if takes_one else ""}
    path = [values.get(part, part) for part in listing.path]
    found = broker.ask("GET", *path, query=_only(listing, columns))
    if not isinstance(found, list):
        raise exits.Failure("the broker's answer is not a list", exits.PROTOCOL)
    if line.command == "list_parameters":
        found = [row for row in found if row.get("vhost") == line.vhost]
    _check(line, listing, columns, found)
    if line.banner:
        if line.command == "list_queues":
            output.say(f"Timeout: {line.seconds(60.0):.1f} seconds ...")
        banner = listing.banner.replace("{vhost}", line.vhost)
        output.say(banner.replace("{0}", values["{0}"]))
    rows = [{column: _value(listing, row, column) for column in columns} for row in found]
    print_rows(line, rows, columns)
    return exits.OK


def _only(listing: Listing, columns: tuple[str, ...]) -> dict[str, str] | None:
    """Return the query that selects only these columns, or None if the API cannot select them.

    It keeps answers small: the row of a queue is two kilobytes long, and a list can have many rows.
    """
    names = [listing.named.get(column, column) for column in columns]
    wanted = ",".join(name for name in names if isinstance(name, str))
    if not all(isinstance(name, str) for name in names):
        return None
    return {"columns": wanted} if len(wanted.encode()) <= SHORT_STRING_BYTES_MAX else None


def _value(listing: Listing, row: Row, column: str) -> object:
    """Return the value of a column in a row."""
    named = listing.named.get(column, column)
    return field(row, named) if isinstance(named, str) else named(row)


def _check(line: CommandLine, listing: Listing, columns: tuple[str, ...], rows: list[Row]) -> None:
    """Check that the columns exist.  Raises: Failure."""
    known = dict.fromkeys((*listing.columns, *listing.more, *listing.named))
    for column in columns:
        if column not in known and not any(holds(row, column) for row in rows):
            text = f"{line.command} has no column {column!r}; known columns: {', '.join(known)}"
            raise exits.Failure(text, exits.USAGE)
