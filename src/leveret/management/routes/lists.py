"""Answers with lists, whose rows are found, made and sent in slices so that other work can run.

`listed` finds the items of a list in the vhosts visible to the user.  `stream_rows` sends their
rows as they are found, or sorted if the request has a sort order or a page (`paging`).
`RowWriter` writes the JSON.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Final, TypeVar

from aiohttp import web

from leveret.broker.core import Core
from leveret.broker.scheduler.costs import SLICE
from leveret.limits import HTTP_WRITE_BYTES_MAX
from leveret.management.gate import book, seen_vhosts, sees_vhost
from leveret.management.paging import PageQuery, filtered, sort_key, sorted_in_slices, wanted_of
from leveret.management.requests.slices import next_slice
from leveret.management.routes.shared import JSON_HEADERS, Row, begins, json_response, vhost_of

#: Rows made and written per slice, about 2 ms of work.  A row of a queue with all its fields takes
#: about 700 lines of uncompiled code.
SLICE_ROWS: Final = 100

#: Values per slice, and the number of characters that cost as much as one value.  The arguments of
#: a single queue may have thousands of values.
SLICE_VALUES: Final = 2048
_CHARACTERS_PER_VALUE: Final = 512

#: The memory of a row in a sorted list: its sort key, and its snapshot (1,900 bytes for a queue).
GATHERED_ROW_BYTES: Final = 2_000

#: The columns that lists are sorted by after the requested ones, as in RabbitMQ.
DEFAULT_SORTS: Final = ("vhost", "name")

Item = TypeVar("Item")


def listed(request: web.Request, of: Callable[[str | None], Iterator[Item]]) -> Iterator[Item]:
    """Return the items of a list in the vhost of the path, or in all visible vhosts.

    `of` returns the items of a vhost, or those of all vhosts for None.

    Raises: NotFound (404) for a missing vhost.
    """
    vhost = vhost_of(request)
    names = seen_vhosts(request) if vhost is None else None
    return of(vhost) if names is None else _listed_of(request, names, of)


def _listed_of(
    request: web.Request, names: Iterable[str], of: Callable[[str | None], Iterator[Item]]
) -> Iterator[Item]:
    for name in names:
        # The vhost may have been deleted and declared again since `names` was made.
        if sees_vhost(request, name):
            yield from of(name)


async def permitted(core: Core, items: list[Item], permits: Callable[[Item], bool]) -> list[Item]:
    """Return the permitted items of a list, checked in slices because a check may be slow.

    `permits` checks one item, possibly by a regex, and counts the cost.
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


async def stream_rows(
    request: web.Request, items: Iterable[Item | None], row: Callable[[Item], Row]
) -> web.StreamResponse:
    """Answer with an array of the rows of the items; items may be lazy, and None is skipped."""
    left = iter(items)

    async def take(count: int) -> list[Item]:
        while looked := list(islice(left, count)):
            if found := [one for one in looked if one is not None]:
                return found
            await next_slice()
        return []

    return await stream_slices(request, take, row)


def as_it_is(row: Row) -> Row:
    """Return the row itself, for a list whose items are its rows."""
    return row


async def stream_slices(
    request: web.Request, take: Callable[[int], Awaitable[list[Item]]], row: Callable[[Item], Row]
) -> web.StreamResponse:
    """Answer with an array of the rows of items; each call of `take` returns more items."""
    wanted = wanted_of(request.query)
    if not wanted.plain:
        return await _sorted_rows(request, wanted, take, row)
    rows = RowWriter(request, wanted)
    if await rows.begin():
        while taken := await take(SLICE_ROWS):
            for item in taken:
                await rows.add(row(item))
            await rows.flush()
        await rows.end()
    return rows.response


async def _sorted_rows(
    request: web.Request,
    wanted: PageQuery,
    take: Callable[[int], Awaitable[list[Item]]],
    row: Callable[[Item], Row],
) -> web.StreamResponse:
    """Answer with the rows of the items from `take`, sorted and paged as requested."""
    gathered: list[tuple[object, str, Item]] = []
    sorts = (*wanted.sort, *DEFAULT_SORTS)
    slices = RowSlices()
    while taken := await take(SLICE_ROWS):
        book(request, len(taken) * GATHERED_ROW_BYTES)
        for item in taken:
            shown = row(item)
            gathered.append((sort_key(shown, sorts), str(shown.get("name", "")), item))
            await slices.made(shown, 0)
        await next_slice()
    found = await filtered(wanted, gathered, lambda one: one[1])
    ordered = await sorted_in_slices(found, lambda one: one[0], wanted.reverse, wanted.end)
    page = wanted.cut([one[2] for one in ordered], len(found))
    return await send_page(request, wanted, page, len(found), len(gathered), row)


async def rows_response(request: web.Request, rows: list[Row]) -> web.StreamResponse:
    """Answer with a complete list, sorted and paged as requested."""
    wanted = wanted_of(request.query)
    if wanted.plain:
        return json_response([wanted.only(row) for row in rows])
    found = await filtered(wanted, rows, lambda row: str(row.get("name", "")))
    sorts = (*wanted.sort, *DEFAULT_SORTS)
    ordered = await sorted_in_slices(found, lambda row: sort_key(row, sorts), wanted.reverse)
    page = wanted.cut(ordered, len(found))
    return await send_page(request, wanted, page, len(found), len(rows), as_it_is)


async def send_page(
    request: web.Request,
    wanted: PageQuery,
    page: list[Item],
    found: int,
    total: int,
    row: Callable[[Item], Row | None],
) -> web.StreamResponse:
    """Answer with a page or a whole sorted list; `found` of `total` items match the filter.

    `row` returns None for an item that has been deleted.
    """
    rows = RowWriter(request, wanted)
    if await rows.begin():
        for item in page:
            if (shown := row(item)) is not None:
                await rows.add(shown)
        await rows.end(found, total)
    return rows.response


class RowWriter:
    """Writes the rows of a list in slices, so that the whole JSON is never in memory."""

    def __init__(self, request: web.Request, wanted: PageQuery) -> None:
        self.response: Final = web.StreamResponse(headers=JSON_HEADERS)
        self._request = request
        self._wanted = wanted
        self._slices = RowSlices()
        #: Unsent JSON, and the number of rows written.
        self._unsent = ""
        self._count = 0

    async def begin(self) -> bool:
        """Begin the answer; return False for a HEAD request, whose answer has no body."""
        self._unsent = "[" if self._wanted.page is None else '{"items": ['
        return await begins(self._request, self.response)

    async def add(self, row: Row) -> None:
        """Write a row with the requested columns."""
        text = json.dumps(self._wanted.only(row), ensure_ascii=False)
        self._unsent += f",{text}" if self._count else text
        self._count += 1
        # Rows may be long, and output stays in memory while the client does not read.
        if len(self._unsent) >= HTTP_WRITE_BYTES_MAX:
            await self.flush()
        await self._slices.made(row, len(text))

    async def flush(self) -> None:
        """Send the written rows, and end the slice."""
        part, self._unsent = self._unsent, ""
        await self.response.write(part.encode())
        await next_slice()

    async def end(self, found: int = 0, total: int = 0) -> None:
        """End the answer; a page also contains the numbers of matching rows and of all rows."""
        self._unsent += "]"
        if self._wanted.page is not None:
            head = json.dumps(self._wanted.paged(self._count, found, total))
            self._unsent += f", {head[1:]}"
        await self.response.write(self._unsent.encode())
        await self.response.write_eof()


class RowSlices:
    """Lets other work run while the rows of a long list are made and written."""

    def __init__(self) -> None:
        self._left = SLICE_VALUES

    async def made(self, row: Row, size: int) -> None:
        """Count a row with all its fields and its `size` in characters of JSON."""
        self._left -= values_in(row) + size // _CHARACTERS_PER_VALUE
        if self._left < 0:
            self._left = SLICE_VALUES
            await next_slice()


def values_in(holder: Mapping[str, object] | list[object]) -> int:
    """Return the number of values in a row, including those in its tables and lists."""
    values = holder.values() if isinstance(holder, Mapping) else holder
    return sum(values_in(one) if isinstance(one, dict | list) else 1 for one in values)
