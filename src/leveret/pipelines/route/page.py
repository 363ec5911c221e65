"""The HTML page of the route job: a diagram of the topology, queues, and unroutable messages."""

from __future__ import annotations

import json
from collections.abc import Sequence

from leveret.pipelines.pages.document import job_page
from leveret.pipelines.pages.origin import PageOrigin
from leveret.pipelines.pages.rows import ROWS_SHOWN, table
from leveret.pipelines.route.result import BindingLoad, Routes

_QUEUE = "queue messages bytes before hot"
_BINDING = "source to destination binding_key arguments messages judged"
_UNROUTABLE = "exchange routing_key reason messages"
_MOVED = "exchange routing_key messages gains losses"


def route_page(routes: Routes, command: str = "") -> str:
    """Return the page; `command` is the equivalent command."""
    return job_page(
        "route",
        f"Routes of {routes.source} in {routes.topology}",
        {
            "origin": PageOrigin(routes.source, command, routes.first, routes.last).described(),
            "against": routes.against,
            "messages": routes.messages,
            "bytes": routes.bytes,
            "keys": routes.keys,
            "unused": len(routes.unused),
            "not_judged": len(routes.not_judged),
            "hot": len(routes.hot),
            "unroutable_messages": routes.unroutable_messages,
            "moved_messages": routes.moved_messages,
            "queues": table(
                _QUEUE,
                ((q.queue, q.messages, q.bytes, q.before, q.hot) for q in routes.queues),
                len(routes.queues),
            ),
            "bindings": table(
                _BINDING, map(_binding, _shown(routes.bindings)), len(routes.bindings)
            ),
            "unroutable": table(
                _UNROUTABLE,
                ((u.exchange, u.routing_key, u.reason, u.messages) for u in routes.unroutable),
                routes.unroutable_keys,
            ),
            "moved": table(
                _MOVED,
                (
                    (m.exchange, m.routing_key, m.messages, ", ".join(m.gains), ", ".join(m.losses))
                    for m in routes.moved
                ),
                routes.moved_keys,
            ),
        },
    )


def _shown(bindings: Sequence[BindingLoad]) -> Sequence[BindingLoad]:
    """Return the bindings for a page: half of the rows for the busiest, half for the least used."""
    if len(bindings) <= ROWS_SHOWN:
        return bindings
    half = ROWS_SHOWN // 2
    return [*bindings[:half], *bindings[-half:]]


def _binding(load: BindingLoad) -> tuple[object, ...]:
    binding = load.binding
    arguments = json.dumps(binding.arguments, ensure_ascii=False) if binding.arguments else ""
    kind = "queue" if binding.to_queue else "exchange"
    return (
        binding.source, kind, binding.destination, binding.binding_key, arguments, load.messages,
        load.judged,
    )  # fmt: skip
