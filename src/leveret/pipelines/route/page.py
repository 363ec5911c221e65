"""What a topology would do, as one HTML page: totals, a plot of the queues, and tables."""

from __future__ import annotations

import json

from leveret.pipelines.pages.markup import Markup
from leveret.pipelines.pages.parts import (
    ROWS_SHOWN,
    bytes_text,
    cut_note,
    heading,
    job_page,
    paragraph,
    table,
    totals,
)
from leveret.pipelines.pages.plots import LENGTHS_MAX, lengths
from leveret.pipelines.route.result import Routes
from leveret.pipelines.route.topology import Binding


def route_page(routes: Routes) -> str:
    """Return the page."""
    return job_page(
        f"{routes.source} through {routes.topology}",
        _totals(routes),
        heading("Queues"),
        *_queues(routes),
        *_moved(routes),
        *_unroutable(routes),
        *_unused(routes),
    )


def _totals(routes: Routes) -> Markup:
    numbers = [
        (f"{routes.messages:,}", "messages"),
        (f"{routes.keys:,}", "distinct keys"),
        (f"{routes.unroutable_messages:,}", "unroutable"),
        (f"{len(routes.unused):,}", f"of {len(routes.bindings):,} bindings unused"),
        (f"{len(routes.hot):,}", "hot queues"),
    ]
    if routes.bytes:
        numbers.insert(1, (bytes_text(routes.bytes), "in bodies"))
    if routes.against is not None:
        numbers.append((f"{routes.moved_messages:,}", f"go elsewhere than in {routes.against}"))
    return totals(numbers)


def _queues(routes: Routes) -> list[Markup]:
    busy = [(load.queue, load.messages) for load in routes.queues if load.messages]
    parts = [lengths(busy, f"Messages of the first {LENGTHS_MAX} queues")] if busy else []
    columns = ["queue", "#messages", "#bytes", ""]
    if routes.against is not None:
        columns[2:2] = ["#before", "#change"]
    rows: list[list[object]] = []
    for load in routes.queues[:ROWS_SHOWN]:
        row: list[object] = [load.queue, load.messages, load.bytes, "hot" if load.hot else ""]
        if routes.against is not None:
            row[2:2] = [load.before, f"{load.messages - load.before:+,}"]
        rows.append(row)
    return [
        *parts,
        cut_note(len(rows), len(routes.queues), "queues with the most messages"),
        table(columns, rows),
    ]


def _moved(routes: Routes) -> list[Markup]:
    if routes.against is None:
        return []
    title = heading(f"Other queues than in {routes.against}")
    if not routes.moved:
        return [title, paragraph("Every message goes where it goes there.")]
    rows = [
        (one.exchange, one.routing_key, one.messages, ", ".join(one.gains), ", ".join(one.losses))
        for one in routes.moved[:ROWS_SHOWN]
    ]
    return [
        title,
        cut_note(len(rows), routes.moved_keys, "keys with the most messages"),
        table(("exchange", "routing key", "#messages", "comes to", "no longer to"), rows),
    ]


def _unroutable(routes: Routes) -> list[Markup]:
    if not routes.unroutable:
        return [heading("Unroutable"), paragraph("Every message reaches a queue.")]
    rows = [
        (one.exchange, one.routing_key, one.reason, one.messages)
        for one in routes.unroutable[:ROWS_SHOWN]
    ]
    return [
        heading("Unroutable"),
        cut_note(len(rows), routes.unroutable_keys, "keys with the most messages"),
        table(("exchange", "routing key", "why", "#messages"), rows),
    ]


def _unused(routes: Routes) -> list[Markup]:
    unused = routes.unused
    if not unused:
        return [heading("Unused bindings"), paragraph("Every binding matched a message.")]
    return [
        heading("Unused bindings"),
        cut_note(min(len(unused), ROWS_SHOWN), len(unused), "bindings"),
        table(
            ("exchange", "to", "destination", "binding key", "arguments"),
            [_binding(binding) for binding in unused[:ROWS_SHOWN]],
        ),
    ]


def _binding(binding: Binding) -> tuple[str, ...]:
    arguments = json.dumps(binding.arguments, ensure_ascii=False) if binding.arguments else ""
    kind = "queue" if binding.to_queue else "exchange"
    return (binding.source, kind, binding.destination, binding.binding_key, arguments)
