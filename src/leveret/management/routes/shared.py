"""Shared by the routes: the broker, JSON answers, and listings that are sent in slices."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from http import HTTPStatus
from itertools import islice
from typing import Final, TypeVar

from aiohttp import hdrs, web

from leveret.broker.broker import Broker
from leveret.broker.core import Core
from leveret.broker.scheduler.costs import SLICE
from leveret.broker.vhost.vhost import Vhost
from leveret.clock import Clock
from leveret.errors import AmqpError, NotFound, PreconditionFailed
from leveret.limits import HTTP_WRITE_BYTES_MAX
from leveret.management.chunk_source import ChunkSource
from leveret.management.direct import DirectChannel, direct_channel
from leveret.management.gate import book, seen_vhosts, sees_vhost
from leveret.management.login.origin import is_page
from leveret.management.operator import Operator
from leveret.management.page import takes_gzip
from leveret.management.paging import (
    PageOutOfRange,
    Wanted,
    columns_of,
    sort_key,
    sorted_in_slices,
    wanted_of,
)
from leveret.management.paging import filtered as filter_names
from leveret.management.requests.slices import next_slice
from leveret.names import Name, cleaned

#: The broker of an application.
BROKER: Final = web.AppKey("broker", Broker)

#: The means to change the broker.
OPERATOR: Final = web.AppKey("operator", Operator)

#: Rows made and written per slice: a queue's row with all its fields takes some 700 lines of
#: uncompiled code, so these are about 2 ms of work.
SLICE_ROWS: Final = 100

#: Values per slice, and the number of characters that costs as much as one value: the arguments of
#: one queue alone may be thousands of values.
SLICE_VALUES: Final = 2048
_CHARACTERS_PER_VALUE: Final = 512

#: The memory of a row in a sorted list: its sort key, and its snapshot (1,900 bytes for a queue).
GATHERED_ROW_BYTES: Final = 2_000

#: The clock of peers' timeouts; it stands still while the process is suspended.
CLOCK: Final = web.AppKey("clock", Clock)

#: Reads the broker's chunks.
CHUNKS: Final = web.AppKey("chunks", ChunkSource)

Row = dict[str, object]
Stats = TypeVar("Stats")
Listed = TypeVar("Listed")

#: The headers of every JSON answer.
JSON_HEADERS: Final = {"Cache-Control": "no-cache", "Content-Type": "application/json"}


def json_response(
    body: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Return a JSON response."""
    return web.Response(
        body=json.dumps(body, ensure_ascii=False).encode(),
        status=status,
        headers={**(headers or {}), **JSON_HEADERS},
    )


def error_response(error: AmqpError, *, names: bool = False) -> web.Response:
    """Return a broker error with its status (`errors`), in RabbitMQ's words.

    With `names`, a 404 has the missing object in `detail`, for callers who may see everything.
    """
    status = error.http_status
    if isinstance(error, PageOutOfRange):
        return json_response({"error": "page_out_of_range", "reason": error.text}, status)
    if status == HTTPStatus.NOT_FOUND:
        body: Row = {"error": "Object Not Found", "reason": "Not Found"}
        if names and error.text:
            body["detail"] = error.text
        return json_response(body, status)
    if status == HTTPStatus.UNAUTHORIZED:
        # RabbitMQ's spelling here; it does not name the refused operation.
        return json_response({"error": "not_authorised", "reason": "Access refused."}, status)
    name = HTTPStatus(status).phrase.lower().replace(" ", "_")
    return json_response({"error": name, "reason": error.text}, status)


def name_of(request: web.Request, part: str) -> Name:
    """Return the name of an exchange, a queue or a super stream at `part` of the path.

    Only this name is checked, looked up and changed; the path itself may contain line ends.

    Raises: PreconditionFailed (400 in HTTP) for a name with only line ends.
    """
    return cleaned(request.match_info[part])


def vhost_of(request: web.Request) -> str | None:
    """Return the vhost in the path; None if it has none.  Raises: NotFound (404)."""
    vhost = request.match_info.get("vhost")
    if vhost is not None and vhost not in request.app[BROKER].vhosts:
        raise NotFound(f"no vhost '{vhost}'")
    return vhost


def found_vhost(request: web.Request) -> Vhost:
    """Return the vhost that the path names.  Raises: NotFound (404)."""
    vhost = request.app[BROKER].vhosts.get(request.match_info["vhost"])
    if vhost is None:
        raise NotFound(f"no vhost '{request.match_info['vhost']}'")
    return vhost


def number_of_query(request: web.Request, name: str, default: int | None, most: int) -> int:
    """Return a number from 0 to `most` in a request's query; without a default it is required.

    Raises: PreconditionFailed (400 in HTTP).
    """
    text = request.query.get(name)
    if text is None and default is not None:
        return default
    if text is None or not text.isascii() or not text.isdigit() or len(text) > 20:
        raise PreconditionFailed(f"the query must have a number '{name}'")
    if int(text) > most:
        raise PreconditionFailed(f"the number '{name}' in the query must be at most {most}")
    return int(text)


def listed(request: web.Request, of: Callable[[str | None], Iterator[Listed]]) -> Iterator[Listed]:
    """Return the rows of a list: in the vhost of the path, or in all visible vhosts.

    `of` begins the list of a vhost, or for None the list of all vhosts.

    Raises: NotFound (404) for a missing vhost.
    """
    vhost = vhost_of(request)
    names = seen_vhosts(request) if vhost is None else None
    return of(vhost) if names is None else _listed_of(request, names, of)


def _listed_of(
    request: web.Request, names: Iterable[str], of: Callable[[str | None], Iterator[Listed]]
) -> Iterator[Listed]:
    for name in names:
        # A vhost may have been deleted and redeclared meanwhile.
        if sees_vhost(request, name):
            yield from of(name)


def seen(request: web.Request) -> list[Vhost]:
    """Return the vhost of the path, or all vhosts visible to the user.

    Raises: NotFound (404) for a missing vhost.
    """
    if "vhost" in request.match_info:
        return [found_vhost(request)]
    vhosts = request.app[BROKER].vhosts
    names = seen_vhosts(request)
    return list(vhosts.values()) if names is None else [vhosts[name] for name in names]


def exchange_of(request: web.Request, part: str) -> Name:
    """Return the name of an exchange in the path; `amq.default` stands for the empty name."""
    name = name_of(request, part)
    return Name("") if name == "amq.default" else name


def as_user(request: web.Request, vhost: str) -> AbstractAsyncContextManager[DirectChannel]:
    """Open an AMQP channel in a vhost as the request's user; see `direct_channel`."""
    opens = request.app[OPERATOR].direct
    assert opens is not None, "the API was created without channels"
    return direct_channel(request, request.app[BROKER], opens, vhost)


class RowSlices:
    """Lets others run while the rows of a long list are made and written."""

    def __init__(self) -> None:
        self._left = SLICE_VALUES

    async def made(self, row: Row, size: int) -> None:
        """Count a row, all of whose fields were made and written as `size` characters."""
        self._left -= values_in(row) + size // _CHARACTERS_PER_VALUE
        if self._left < 0:
            self._left = SLICE_VALUES
            await next_slice()


def values_in(holder: Mapping[str, object] | list[object]) -> int:
    """Return the number of values in a row, including those in its tables and lists."""
    values = holder.values() if isinstance(holder, Mapping) else holder
    return sum(values_in(one) if isinstance(one, dict | list) else 1 for one in values)


async def begins(request: web.Request, response: web.StreamResponse) -> bool:
    """Send the head of an answer; return whether to send a body, which is false for HEAD.

    The framework would send the body, and the client would take it for the next answer.
    """
    await response.prepare(request)
    return request.method != hdrs.METH_HEAD


async def stream_found(
    request: web.Request, found: Iterator[Stats | None], row: Callable[[Stats], Row]
) -> web.StreamResponse:
    """Answer with an array of the found rows, without None; see `stream_slices`."""

    async def taken(count: int) -> list[Stats]:
        while looked := list(islice(found, count)):
            if some := [one for one in looked if one is not None]:
                return some
            await next_slice()
        return []

    return await stream_slices(request, taken, row)


async def stream_rows(
    request: web.Request, take: Callable[[int], list[Stats]], row: Callable[[Stats], Row]
) -> web.StreamResponse:
    """Answer with an array of the rows that `take` returns; see `stream_slices`."""

    async def taken(count: int) -> list[Stats]:
        return take(count)

    return await stream_slices(request, taken, row)


async def stream_slices(
    request: web.Request,
    take: Callable[[int], Awaitable[list[Stats]]],
    row: Callable[[Stats], Row],
) -> web.StreamResponse:
    """Answer with an array of the rows that `take` returns, in slices, so that others can run.

    If the request wants a page or an order, the rows are collected and sorted first.
    """
    wanted = wanted_of(request.query)
    if not wanted.plain:
        return await _ordered_rows(request, wanted, take, row)
    rows = RowWriter(request, wanted)
    if await rows.begin():
        while taken := await take(SLICE_ROWS):
            for stats in taken:
                await rows.add(row(stats))
            await rows.flush()
        await rows.end()
    return rows.response


async def permitted(
    core: Core, items: list[Listed], permits: Callable[[Listed], bool]
) -> list[Listed]:
    """Return the permitted items of a list, checked in slices: each may take a slow regex.

    `permits` checks one, and counts its steps.
    """
    found = []
    last = core.scheduler.spent + SLICE
    for item in items:
        if permits(item):
            found.append(item)
        if core.scheduler.spent >= last:
            await next_slice()
            last = core.scheduler.spent + SLICE
    return found


def in_slices(items: Iterable[Listed]) -> Callable[[int], list[Listed]]:
    """Return a function that takes a list in slices; its items may be made lazily."""
    left = iter(items)
    return lambda count: list(islice(left, count))


def as_it_is(row: Row) -> Row:
    """Return the row itself."""
    return row


#: The columns that lists are sorted by after those of the request, as in RabbitMQ.
DEFAULT_SORTS: Final = ("vhost", "name")


async def _ordered_rows(
    request: web.Request,
    wanted: Wanted,
    take: Callable[[int], Awaitable[list[Stats]]],
    row: Callable[[Stats], Row],
) -> web.StreamResponse:
    """Answer with the requested page of the rows from `take`, in the requested order."""
    gathered: list[tuple[object, str, Stats]] = []
    sorts = (*wanted.sort, *DEFAULT_SORTS)
    slices = RowSlices()
    while taken := await take(SLICE_ROWS):
        book(request, len(taken) * GATHERED_ROW_BYTES)
        for stats in taken:
            shown = row(stats)
            gathered.append((sort_key(shown, sorts), str(shown.get("name", "")), stats))
            await slices.made(shown, 0)
        await next_slice()
    found = await filter_names(wanted, gathered, lambda item: item[1])
    ordered = await sorted_in_slices(found, lambda item: item[0], wanted.reverse, wanted.end)
    return await answer_with(
        request, wanted, [item[2] for item in ordered], len(found), len(gathered), row
    )


async def answer_with(
    request: web.Request,
    wanted: Wanted,
    ordered: list[Stats],
    found: int,
    total: int,
    row: Callable[[Stats], Row],
) -> web.StreamResponse:
    """Answer with a sorted list: all of it, or the requested page.

    `ordered` holds all `found` items, or at least those up to the end of the page.

    Raises: PageOutOfRange (400 in HTTP).
    """
    if wanted.page is not None:
        wanted.check_range(found)
        ordered = ordered[wanted.begin : wanted.end]
    rows = RowWriter(request, wanted)
    if await rows.begin():
        for stats in ordered:
            await rows.add(row(stats))
        await rows.end(found, total)
    return rows.response


class RowWriter:
    """Writes the rows of a list in slices, as they are made, so that memory holds no whole list."""

    def __init__(self, request: web.Request, wanted: Wanted) -> None:
        self.response: Final = web.StreamResponse(headers=JSON_HEADERS)
        self._request = request
        self._wanted = wanted
        self._slices = RowSlices()
        #: Unsent JSON, and the number of rows written.
        self._unsent = ""
        self._count = 0

    async def begin(self) -> bool:
        """Begin the answer; return False for a HEAD request, which has no body."""
        self._unsent = "[" if self._wanted.page is None else '{"items": ['
        return await begins(self._request, self.response)

    async def add(self, row: Row) -> None:
        """Write a row with the requested columns."""
        text = json.dumps(self._wanted.only(row), ensure_ascii=False)
        self._unsent += f",{text}" if self._count else text
        self._count += 1
        # Rows may be long, and output for a client that does not read stays in memory.
        if len(self._unsent) >= HTTP_WRITE_BYTES_MAX:
            await self.flush()
        await self._slices.made(row, len(text))

    async def flush(self) -> None:
        """Send what was written, and end the slice."""
        part, self._unsent = self._unsent, ""
        await self.response.write(part.encode())
        await next_slice()

    async def end(self, found: int = 0, total: int = 0) -> None:
        """End the answer; a page gets the numbers of `found` rows and of all rows (`total`)."""
        self._unsent += "]"
        if self._wanted.page is not None:
            head = json.dumps(self._wanted.paged(self._count, found, total))
            self._unsent += f", {head[1:]}"
        await self.response.write(self._unsent.encode())
        await self.response.write_eof()


async def rows_response(request: web.Request, rows: list[Row]) -> web.StreamResponse:
    """Return a complete list, in the order and with the page that the request wants."""
    wanted = wanted_of(request.query)
    if wanted.plain:
        return json_response([wanted.only(row) for row in rows])
    found = await filter_names(wanted, rows, lambda row: str(row.get("name", "")))
    sorts = (*wanted.sort, *DEFAULT_SORTS)
    ordered = await sorted_in_slices(found, lambda row: sort_key(row, sorts), wanted.reverse)
    return await answer_with(request, wanted, ordered, len(found), len(rows), as_it_is)


async def shared_response(
    request: web.Request, make: Callable[[], Awaitable[object]]
) -> web.Response:
    """Return the result of `make`; a browser's page may get a recent answer to another page.

    The result must be the same for all users who may make this request.
    """
    if not is_page(request):
        return json_response(await make())
    answers = request.app[OPERATOR].sampler.answers
    asked = request.rel_url.raw_path_qs
    answer = answers.find(asked)
    if answer is None:
        answer = answers.keep(asked, json.dumps(await make(), ensure_ascii=False).encode())
    headers = {**JSON_HEADERS, hdrs.VARY: "Accept-Encoding"}
    if takes_gzip(request):
        headers[hdrs.CONTENT_ENCODING] = "gzip"
        return web.Response(body=answer.compressed, headers=headers)
    return web.Response(body=answer.body, headers=headers)


def columns_asked(request: web.Request, row: Row) -> object:
    """Return an object with the requested columns."""
    columns = columns_of(request.query)
    return row if columns is None else columns.of(row)


def row_response(request: web.Request, row: Row) -> web.Response:
    """Return one object with the requested columns."""
    return json_response(columns_asked(request, row))
