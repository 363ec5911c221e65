"""`GET /metrics` and the paths below it, for Prometheus; `management.metrics` collects the values.

On the ports of the HTTP API they require the tag `monitoring` (`rights`).  The metrics port needs
no authentication.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from itertools import chain
from typing import Final

from aiohttp import web

from leveret.errors import NotFound, PreconditionFailed
from leveret.management.api_route import TEXT, ApiRoute, Schema
from leveret.management.metrics import series as table
from leveret.management.metrics.aggregated import (
    AGGREGATED,
    DETAILED,
    MEMORY,
    PER_OBJECT,
    Values,
    aggregated,
    all_values,
    identity,
    memory_parts,
)
from leveret.management.metrics.objects import Objects
from leveret.management.metrics.series import MetricSeries
from leveret.management.metrics.stream_queries import QueryReading
from leveret.management.metrics.text import CONTENT_TYPE, pieces
from leveret.management.metrics.totals import Scrapes, resident_bytes
from leveret.management.requests.slices import next_slice
from leveret.management.rights import MONITORING
from leveret.management.routes.shared import BROKER, CLOCK, OPERATOR, begins, json_response

_IDENTITY: Final = {"identity_info": table.NODE["identity_info"]}

#: A valid prefix; Prometheus accepts no other characters in names.
PREFIX: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]{0,31}")


def _scrapes(request: web.Request) -> Scrapes:
    """Return the source of totals.  Raises: NotFound (404) if metrics are off."""
    scrapes = request.app[OPERATOR].scrapes
    if scrapes is None:
        raise NotFound("metrics are disabled by the setting metrics=false")
    return scrapes


def _prefix(request: web.Request) -> str:
    """Return the prefix of RabbitMQ's names.  Raises: PreconditionFailed (400)."""
    wanted = request.query.get("prefix")
    if wanted is None:
        return f"{_scrapes(request).prefix}_"
    if PREFIX.fullmatch(wanted) is None:
        raise PreconditionFailed("a prefix has up to 32 letters, digits and underscores")
    return f"{wanted.removesuffix('_')}_"


async def _send(request: web.Request, text: AsyncIterator[bytes]) -> web.StreamResponse:
    """Send the pieces of `text` as the answer."""
    response = web.StreamResponse(headers={"Content-Type": CONTENT_TYPE})
    if not await begins(request, response):
        return response
    async for piece in text:
        await response.write(piece)
    await response.write_eof()
    return response


async def _yielding(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield parts joined to larger pieces, and end the slice after each piece.

    Each piece is a write to the socket.  The slice also ends after an empty part, which stands for
    many skipped objects; empty pieces are not yielded.
    """
    found: list[bytes] = []
    size = 0
    for part in parts:
        found.append(part)
        size += len(part)
        if size > 16_384 or not part:
            if size:
                yield b"".join(found)
            found.clear()
            size = 0
            await next_slice()
    if size:
        yield b"".join(found)


async def metrics(request: web.Request) -> web.StreamResponse:
    """Return the metrics of the broker.  Raises: NotFound (404), PreconditionFailed (400)."""
    prefix = _prefix(request)
    return await _send(request, _yielding(await _totals(request, prefix, AGGREGATED)))


async def per_object(request: web.Request) -> web.StreamResponse:
    """Return metrics with an entry for each object.  Raises: like `metrics`."""
    prefix = _prefix(request)
    head = await _totals(request, prefix, PER_OBJECT)
    objects = Objects(request.app[BROKER], table.PER_OBJECT, None, queries=_queries(request))
    return await _answer_objects(request, objects, prefix, head)


async def detailed(request: web.Request) -> web.StreamResponse:
    """Return the requested families of metrics, for some vhosts or all.  Raises: like `metrics`."""
    prefix = _prefix(request)
    vhosts = request.query.getall("vhost", [])
    families = request.query.getall("family", [])
    broker = request.app[BROKER]
    objects = Objects(broker, families, vhosts or None, queries=_queries(request))
    head = _known(_IDENTITY, {"identity_info": identity(broker, DETAILED)}, prefix)
    named = [family for name, family in table.SUMS.items() if name in families]
    if named:
        scrapes = _scrapes(request)
        totals = await scrapes.walks.totals()
        found = all_values(broker, scrapes, request.app[OPERATOR].counts(), totals, DETAILED)
        parts = [_known(family, found, f"{prefix}detailed_") for family in named]
        head = chain(head, *parts)
    return await _answer_objects(request, objects, f"{prefix}detailed_", head)


def _queries(request: web.Request) -> Iterator[QueryReading]:
    """Return the metrics of the Spark queries that read streams."""
    return request.app[OPERATOR].queries.readings(request.app[BROKER], request.app[CLOCK])


async def _totals(request: web.Request, prefix: str, endpoint: str) -> Iterator[bytes]:
    operator, scrapes = request.app[OPERATOR], _scrapes(request)
    totals = await scrapes.walks.totals()
    return aggregated(request.app[BROKER], scrapes, operator.counts(), totals, prefix, endpoint)


async def _answer_objects(
    request: web.Request, objects: Objects, prefix: str, head: Iterator[bytes]
) -> web.StreamResponse:
    """Answer with `head` and the objects, or with 503 if too many such requests are in progress."""
    scrapes = _scrapes(request)
    if not scrapes.enter():
        body = {"error": "service_unavailable", "reason": "too many per-object answers in progress"}
        return json_response(body, HTTPStatus.SERVICE_UNAVAILABLE, {"Retry-After": "5"})
    try:
        await objects.take()
        return await _send(request, _both(head, objects.text(prefix)))
    finally:
        scrapes.leave()


async def _both(head: Iterator[bytes], rest: Iterator[bytes]) -> AsyncIterator[bytes]:
    for parts in (head, rest):
        async for part in _yielding(parts):
            yield part


def _known(series: dict[str, MetricSeries], values: Values, prefix: str) -> Iterator[bytes]:
    """Yield the text of some series."""
    for one in series.values():
        labels = one.labels if values[one.name][0][0] else ()
        yield from pieces(one, prefix, values[one.name], labels)


async def memory(request: web.Request) -> web.StreamResponse:
    """Return the memory breakdown.  Raises: like `metrics`."""
    prefix = _prefix(request)
    broker = request.app[BROKER]
    parts = memory_parts(broker)
    other = resident_bytes() - parts["messages"] - parts["definitions"] - parts["connections"]
    sizes = {
        "memory_client_connection_other_bytes": parts["connections"],
        "memory_binary_heap_bytes": parts["messages"],
        "memory_classic_metadata_store_bytes": parts["definitions"],
        "memory_other_system_bytes": max(0, other),
    }
    values: Values = {name: [((), size)] for name, size in sizes.items()}
    values["leveret_memory_bytes"] = [((kind,), size) for kind, size in parts.items()]
    values["identity_info"] = identity(broker, MEMORY)
    series = {
        **_IDENTITY,
        **table.MEMORY,
        "leveret_memory_bytes": table.LEVERET["leveret_memory_bytes"],
    }
    return await _send(request, _yielding(_known(series, values, prefix)))


_TEXT: Final[Schema] = {"description": "Metrics.", "content": {"text/plain": {"schema": TEXT}}}

ROUTES: Final = (
    ApiRoute("GET", "/metrics", metrics, MONITORING, answer=_TEXT),
    ApiRoute("GET", "/metrics/per-object", per_object, MONITORING, answer=_TEXT, heavy=True),
    ApiRoute("GET", "/metrics/detailed", detailed, MONITORING, answer=_TEXT, heavy=True),
    ApiRoute("GET", "/metrics/memory-breakdown", memory, MONITORING, answer=_TEXT),
)
