"""`/api/bindings`: lists, adds and removes bindings of queues and exchanges."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import Final
from urllib.parse import quote, quote_plus, unquote_plus

from aiohttp import web

from leveret.broker.stats.bindings import BindingStats, binding_rows, bindings_between
from leveret.errors import NotFound
from leveret.management.api_route import TABLE, TEXT, ApiRoute
from leveret.management.bodies import object_of, table_or_none, text_of
from leveret.management.fields import plain
from leveret.management.gate import may_read, may_write
from leveret.management.requests.slices import next_slice
from leveret.management.rights import LOOKING, MANAGEMENT
from leveret.management.routes.lists import SLICE_ROWS, listed, stream_rows
from leveret.management.routes.shared import (
    BROKER,
    Row,
    as_user,
    exchange_of,
    found_vhost,
    name_of,
    row_response,
)
from leveret.store.records.fields import encoded_table, identity_of
from leveret.wire.method import Method
from leveret.wire.methods import (
    ExchangeBind,
    ExchangeBindOk,
    ExchangeUnbind,
    ExchangeUnbindOk,
    QueueBind,
    QueueBindOk,
    QueueUnbind,
    QueueUnbindOk,
)


async def bindings(request: web.Request) -> web.StreamResponse:
    """Return all bindings, or those of a vhost."""
    rows = listed(request, partial(binding_rows, request.app[BROKER]))
    return await stream_rows(request, rows, row)


def row(stats: BindingStats) -> Row:
    """Return a binding as in RabbitMQ's API."""
    return {
        "source": stats.source,
        "vhost": stats.vhost,
        "destination": stats.destination,
        "destination_type": "queue" if stats.to_queue else "exchange",
        "routing_key": stats.binding_key,
        "arguments": plain(stats.arguments),
        "properties_key": properties_key(stats.binding_key, stats.arguments_key),
    }


def properties_key(binding_key: str, arguments_key: bytes) -> str:
    """Return the key that identifies a binding between a source and a destination.

    It consists of the binding key and a digest of the arguments.  As in RabbitMQ, it is `~` for an
    empty binding key without arguments, and a `~` in a binding key is encoded.
    """
    key = quote_plus(binding_key).replace("~", "%7E")
    if not arguments_key:
        return key or "~"
    digest = hashlib.blake2b(arguments_key, digest_size=16).digest()
    return f"{key}~{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


class _Ends:
    """The source and the destination in a path, both of which exist.

    With `changes`, the user's permissions are checked before the objects are looked up.

    Raises: NotFound (404); AccessRefused (401 in HTTP).
    """

    def __init__(self, request: web.Request, *, changes: bool = False) -> None:
        vhost = found_vhost(request)
        kind = request.match_info["kind"]
        if kind not in ("q", "e"):
            raise NotFound(f"the destination type must be q or e, not '{kind}'")
        self.vhost: Final = vhost.name
        self.to_queue: Final = kind == "q"
        self.source: Final = exchange_of(request, "source")
        named = name_of if self.to_queue else exchange_of
        self.destination: Final = named(request, "destination")
        if changes:
            may_write(request, self.destination, "queue" if self.to_queue else "exchange")
            may_read(request, self.source, "exchange")
        vhost.exchanges.existing(self.source)
        if not self.to_queue:
            vhost.exchanges.existing(self.destination)
        elif changes:
            vhost.queues.existing(self.destination, None)
        elif self.destination not in vhost.queues.by_name:
            raise NotFound(f"no queue '{self.destination}'")

    def rows(self, request: web.Request) -> Iterator[BindingStats]:
        """Return the bindings between the source and the destination."""
        broker = request.app[BROKER]
        return bindings_between(broker, self.vhost, self.source, self.destination, self.to_queue)

    async def found(self, request: web.Request) -> BindingStats:
        """Return the binding with the properties key of the path.  Raises: NotFound (404)."""
        wanted = request.match_info["props"]
        rows = self.rows(request)
        while taken := list(islice(rows, SLICE_ROWS)):
            for stats in taken:
                key = properties_key(stats.binding_key, stats.arguments_key)
                # The framework has decoded the path once, so it may contain the decoded key.
                if wanted in (key, unquote_plus(key)):
                    return stats
            await next_slice()
        raise NotFound(f"no binding '{wanted}'")


async def between(request: web.Request) -> web.StreamResponse:
    """Return the bindings between a source and a destination."""
    return await stream_rows(request, _Ends(request).rows(request), row)


async def one(request: web.Request) -> web.Response:
    """Return one binding."""
    return row_response(request, row(await _Ends(request).found(request)))


async def bind(request: web.Request) -> web.Response:
    """Bind a destination to a source with `routing_key` and `arguments`.

    The header Location of the answer is the path of the binding.
    """
    body = await object_of(request)
    ends = _Ends(request, changes=True)
    key = text_of(body, "routing_key", "")
    arguments = table_or_none(body, "arguments")
    method: Method
    if ends.to_queue:
        method = QueueBind(ends.destination, ends.source, key, arguments=arguments)
    else:
        method = ExchangeBind(ends.destination, ends.source, key, arguments=arguments)
    async with as_user(request, ends.vhost) as channel:
        await channel.request(method, QueueBindOk, ExchangeBindOk)
    props = properties_key(key, identity_of(encoded_table(arguments or {})))
    # Relative to the path of the request, as in RabbitMQ.
    where = f"{quote(ends.destination, safe='')}/{quote(props, safe='~')}"
    return web.Response(status=201, headers={"Location": where})


async def unbind(request: web.Request) -> web.Response:
    """Remove one binding."""
    ends = _Ends(request, changes=True)
    found = await ends.found(request)
    method: Method
    if ends.to_queue:
        method = QueueUnbind(ends.destination, ends.source, found.binding_key, found.arguments)
    else:
        method = ExchangeUnbind(
            ends.destination, ends.source, found.binding_key, arguments=found.arguments
        )
    async with as_user(request, ends.vhost) as channel:
        await channel.request(method, QueueUnbindOk, ExchangeUnbindOk)
    return web.Response(status=204)


_BETWEEN: Final = "/api/bindings/{vhost}/e/{source}/{kind}/{destination}"

ROUTES: Final = (
    ApiRoute("GET", "/api/bindings", bindings, LOOKING, rows=True, heavy=True),
    ApiRoute("GET", "/api/bindings/{vhost}", bindings, LOOKING, rows=True, heavy=True),
    ApiRoute("GET", _BETWEEN, between, LOOKING, rows=True, heavy=True),
    ApiRoute("POST", _BETWEEN, bind, MANAGEMENT, body={"routing_key": TEXT, "arguments": TABLE}),
    ApiRoute("GET", _BETWEEN + "/{props}", one, LOOKING, heavy=True),
    ApiRoute("DELETE", _BETWEEN + "/{props}", unbind, MANAGEMENT, heavy=True),
)
