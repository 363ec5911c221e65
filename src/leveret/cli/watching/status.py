"""`leveret status`: print the state of a broker once, for people or programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from leveret.cli import exits
from leveret.cli.helping.commands import single
from leveret.cli.place import Api, BrokerOptions, Config, ContextName, DataDir
from leveret.cli.printing import output

if TYPE_CHECKING:
    from leveret.cli.printing.rows import Row
    from leveret.cli.watching.look import Snapshot

Format = Annotated[
    Literal["text", "json"], typer.Option("--format", metavar="text|json", help="The format.")
]

#: The width of the column with the names.
_NAME_WIDTH = 13


def status(
    form: Format = "text",
    data_dir: DataDir = None,
    config: Config = None,
    api: Api = "",
    name: ContextName = "",
) -> int:
    """Print the state of a broker: contents and alarms."""
    from leveret.cli.watching.look import take_look

    look = take_look(BrokerOptions(data_dir, config, api, name).find_api())
    if form == "json":
        output.say_json({"overview": look.overview, "node": look.node})
        return exits.OK
    _print_lines(look)
    return exits.OK


def print_status(place: BrokerOptions) -> None:
    """Print the state of a broker, for people.  Raises: Failure."""
    from leveret.cli.watching.look import take_look

    _print_lines(take_look(place.find_api()))


def _print_lines(look: Snapshot) -> None:
    for title, value in lines_of(look):
        output.say(f"{title:<{_NAME_WIDTH}} {value}")


def lines_of(look: Snapshot) -> Iterator[tuple[str, str]]:
    """Yield the names and values of the status."""
    from leveret.cli.watching.figures import count, counted, per_second
    from leveret.cli.watching.look import number

    overview = look.overview
    product, version = overview.get("product_name", "broker"), overview.get("product_version", "")
    # RabbitMQ and earlier releases of Leveret do not report a build.
    build = f"{overview['build']}, " if "build" in overview else ""
    yield "broker", f"{product} {version} ({build}{overview.get('erlang_full_version', '')})"
    yield "name", f"{overview.get('node', '')} of {overview.get('cluster_name', '')}"
    if look.node is None:
        yield "node", "hidden without the tag monitoring or administrator"
    else:
        yield from _node_lines(look.node)
    yield from _listener_lines(overview)
    kinds = ("connection", "channel", "queue", "consumer", "exchange")
    held = [counted(number(overview, f"object_totals.{kind}s"), kind) for kind in kinds]
    yield "objects", ", ".join(held)
    ready = number(overview, "queue_totals.messages_ready")
    unacked = number(overview, "queue_totals.messages_unacknowledged")
    yield "messages", f"{count(ready)} ready, {count(unacked)} unacked"
    rates = [
        f"{per_second(number(overview, f'message_stats.{field}_details.rate'))} {said}"
        for field, said in (
            ("publish", "published"),
            ("deliver_get", "delivered"),
            ("ack", "acked"),
        )
    ]
    yield "each second", ", ".join(rates)


def _node_lines(node: Row) -> Iterator[tuple[str, str]]:
    """Yield the lines about a broker's process and store."""
    from leveret.cli.watching.figures import count, counted, size, span
    from leveret.cli.watching.look import number

    yield "process", f"{node.get('os_pid', '')}, up {span(number(node, 'uptime'))}"
    yield "alarms", ", ".join(alarms_of(node)) or "none"
    used, limit = number(node, "mem_used"), number(node, "mem_limit")
    yield "memory", f"{size(used)} of {size(limit)} for clients"
    free, least = number(node, "disk_free"), number(node, "disk_free_limit")
    yield "disk", f"{size(free)} free, minimum {size(least)}"
    syncs = counted(number(node, "io_sync_count"), "sync")
    each = f"{number(node, 'io_sync_avg_time'):.2f} ms"
    yield "journal", f"{syncs} of {each}, {size(number(node, 'io_write_bytes'))} written"
    files, most = number(node, "fd_used"), number(node, "fd_total")
    yield "descriptors", f"{count(files)} of {count(most)}"
    damages = number(node, "store_damages")
    lost = number(node, "store_records_lost")
    told = "none" if not damages else f"{counted(damages, 'place')}, {counted(lost, 'record')} lost"
    yield "damage", told


def alarms_of(node: Row | None) -> list[str]:
    """Return the resources with an active alarm, which blocks publishers."""
    from leveret.cli.watching.look import flag

    alarms = {"mem_alarm": "memory", "disk_free_alarm": "disk"}
    return [name for field, name in alarms.items() if flag(node, field)]


def _listener_lines(overview: Row) -> Iterator[tuple[str, str]]:
    """Yield the addresses of a broker's listeners."""
    found = overview.get("listeners")
    title = "listens on"
    for one in found if isinstance(found, list) else []:
        if isinstance(one, Mapping):
            host = str(one.get("ip_address", ""))
            host = f"[{host}]" if ":" in host else host
            yield title, f"{one.get('protocol', '')} {host}:{one.get('port', '')}"
            title = ""


def app() -> typer.Typer:
    """Return the command."""
    return single("status", status)
