"""The screen of `leveret top`: lines with totals, and a table of queues.

All text from the broker is escaped here, because rich prints it unchanged.
"""

from __future__ import annotations

from typing import Final

from rich.console import Group
from rich.table import Table
from rich.text import Text

from leveret.cli.printing.rows import Row
from leveret.cli.watching.figures import count, per_second, size, span
from leveret.cli.watching.look import Snapshot, grown, number, rate
from leveret.cli.watching.status import alarms_of
from leveret.escaping import escaped

#: The number of lines on the screen that do not show a queue.
LINES_APART: Final = 9

#: The sort orders, and the columns that they sort by.
_SORTED: Final = {
    "messages": "ready",
    "publish": "published/s",
    "deliver": "delivered/s",
    "ack": "acked/s",
    "consumers": "consumers",
    "name": "queue",
}

#: The column names of the table.
_HEADS: Final = (
    "vhost",
    "queue",
    "type",
    "ready",
    "unacked",
    "consumers",
    "published/s",
    "delivered/s",
    "acked/s",
)

#: The number of text columns; the others are numbers.
_TEXTS: Final = 3


def screen_of(look: Snapshot, before: Snapshot | None, sort: str, note: str) -> Group:
    """Return the whole screen; its last line is `note`, unless that is empty."""
    last = [_line(note)] if note else []
    return Group(*_totals(look, before), Text(""), _queues(look, before, sort), *last)


def _totals(look: Snapshot, before: Snapshot | None) -> list[Text]:
    """Return the lines above the queues."""
    now, then = look.overview, None if before is None else before.overview
    seconds = 0.0 if before is None else look.at - before.at
    objects = ", ".join(
        f"{count(number(now, f'object_totals.{kind}'))} {kind}"
        for kind in ("connections", "channels", "consumers", "queues")
    )
    ready = count(number(now, "queue_totals.messages_ready"))
    unacked = count(number(now, "queue_totals.messages_unacknowledged"))
    rates = ", ".join(
        f"{per_second(rate(now, then, f'message_stats.{field}', seconds))} {said}"
        for field, said in (
            ("publish", "published"),
            ("deliver_get", "delivered"),
            ("ack", "acked"),
            ("redeliver", "redelivered"),
        )
    )
    churn = ", ".join(
        f"{per_second(rate(now, then, f'churn_rates.{field}', seconds))} {said}"
        for field, said in (
            ("connection_created", "connections"),
            ("channel_created", "channels"),
            ("queue_declared", "queues"),
        )
    )
    lines = [
        f"messages: {ready} ready, {unacked} unacked; each second: {rates}",
        f"{objects}; new each second: {churn}",
    ]
    made = [_head(look)]
    lines += _node_lines(look, before, seconds)
    return made + [_line(line) for line in lines]


def _line(text: str, style: str = "") -> Text:
    return Text(escaped(text), style=style, no_wrap=True, overflow="ellipsis")


def _head(look: Snapshot) -> Text:
    """Return the first line: the broker, its uptime, and its alarms in red."""
    overview = look.overview
    name = f"{overview.get('product_name', '')} {overview.get('product_version', '')}"
    line = f"{name} {overview.get('node', '')}"
    if look.node is not None:
        line += f", up {span(number(look.node, 'uptime'))}"
    head = _line(line, "bold")
    if alarms := alarms_of(look.node):
        alarm = ", ".join(alarms)
        head.append(escaped(f"  ALARM: {alarm}; publishers are blocked"), style="bold red")
    return head


def _node_lines(look: Snapshot, before: Snapshot | None, seconds: float) -> list[str]:
    """Return the lines about memory, disk and the journal, if the user may read them."""
    node = look.node
    if node is None:
        return ["memory and journal: hidden without the tag monitoring or administrator", ""]
    then = None if before is None else before.node
    syncs = per_second(grown(node, then, "io_sync_count", seconds))
    written = size(grown(node, then, "io_write_bytes", seconds))
    records = per_second(grown(node, then, "records_written", seconds))
    used, limit = size(number(node, "mem_used")), size(number(node, "mem_limit"))
    free = size(number(node, "disk_free"))
    files = f"{count(number(node, 'fd_used'))} of {count(number(node, 'fd_total'))}"
    each = f"{number(node, 'io_sync_avg_time'):.2f} ms"
    return [
        f"memory: {used} of {limit}; disk: {free} free; descriptors: {files}",
        f"journal: {syncs} syncs/s of {each}, {records} records/s, {written}/s",
    ]


def _queues(look: Snapshot, before: Snapshot | None, sort: str) -> Table:
    """Return the table of queues."""
    known: dict[object, Row] = {}
    if before is not None:
        known = {_key(queue): queue for queue in before.queues}
    seconds = 0.0 if before is None else look.at - before.at
    table = Table(box=None, pad_edge=False, header_style="bold")
    for place, head in enumerate(_HEADS):
        table.add_column(
            Text(escaped(head), style="bold reverse" if head == _SORTED[sort] else "bold"),
            justify="left" if place < _TEXTS else "right",
            no_wrap=True,
            overflow="ellipsis",
        )
    for queue in look.queues:
        table.add_row(*[Text(escaped(cell)) for cell in _cells(queue, known, seconds)])
    return table


def _cells(queue: Row, known: dict[object, Row], seconds: float) -> list[str]:
    """Return the cells of a queue."""
    then = known.get(_key(queue))
    rates = [
        per_second(rate(queue, then, f"message_stats.{field}", seconds))
        for field in ("publish", "deliver_get", "ack")
    ]
    return [
        str(queue.get("vhost", "")),
        str(queue.get("name", "")),
        str(queue.get("type", "")),
        count(number(queue, "messages_ready")),
        count(number(queue, "messages_unacknowledged")),
        count(number(queue, "consumers")),
        *rates,
    ]


def _key(queue: Row) -> tuple[str, str]:
    """Return the vhost and the name of a queue."""
    return str(queue.get("vhost", "")), str(queue.get("name", ""))
