"""The query options of a list: pagination, filter, sort order and columns.

The options and their errors are those of RabbitMQ's API.  Long lists are sorted and filtered in
slices, so that other requests need not wait.  The broker's own matcher applies a client's regex,
with a limit on the steps per list.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, TypeVar

from leveret.broker.patterns.patterns import Pattern
from leveret.errors import PreconditionFailed
from leveret.limits import (
    LIST_PATTERN_STEPS_MAX,
    LIST_SORTS_MAX,
    PAGE_FILTER_CHARACTERS_MAX,
    PAGE_ROWS_MAX,
)
from leveret.management.requests.slices import next_slice

Item = TypeVar("Item")
Row = dict[str, object]

#: The default number of rows of a page.
PAGE_ROWS: Final = 100

#: Items sorted and names filtered per slice.
_SORTED_AT_ONCE: Final = 2_000
_NAMES_AT_ONCE: Final = 5_000

#: Steps of a regex per slice (less than a millisecond in compiled code, 10 ms in plain Python).
_STEPS_AT_ONCE: Final = 8_000

#: The maximum number of digits of a page number or size.
_DIGITS_MAX: Final = 9


class PageOutOfRange(PreconditionFailed):
    """A page after the last one (400)."""


class RowFields:
    """The requested fields of each row; the column `a.b` is the field b of the object a.

    The cost of a field does not depend on the number of columns, which the client chooses.
    """

    def __init__(self, paths: Iterable[Sequence[str]] = ()) -> None:
        #: The requested parts of each field; None for the whole field.
        self.fields: Final[dict[str, RowFields | None]] = {}
        for path in paths:
            self._add(path)

    def _add(self, path: Sequence[str]) -> None:
        columns = self
        for part in path[:-1]:
            within = columns.fields.setdefault(part, RowFields())
            if within is None:
                # The whole field is requested already.
                return
            columns = within
        if path:
            columns.fields[path[-1]] = None

    def of(self, value: object) -> object:
        """Return a row, or a list of rows, with these columns only."""
        if isinstance(value, list):
            return [self.of(one) for one in value]
        if not isinstance(value, Mapping):
            return value
        found: Row = {}
        for name, content in value.items():
            if name in self.fields:
                within = self.fields[name]
                found[name] = content if within is None else within.of(content)
        return found


@dataclass(frozen=True)
class PageQuery:
    """The options in the query of a request; `page` is None for the whole list."""

    page: int | None
    page_size: int
    name: str
    pattern: Pattern | None
    sort: tuple[str, ...]
    reverse: bool
    columns: RowFields | None

    @property
    def plain(self) -> bool:
        """Return whether the list is requested in its natural order."""
        return self.page is None and not self.sort and not self.reverse

    @property
    def begin(self) -> int:
        """The position of the page's first row."""
        return 0 if self.page is None else (self.page - 1) * self.page_size

    @property
    def end(self) -> int | None:
        """The position after the page's last row, or None for the whole list."""
        return None if self.page is None else self.page * self.page_size

    def only(self, row: Row) -> object:
        """Return a row with the requested columns only."""
        return row if self.columns is None else self.columns.of(row)

    def paged(self, count: int, filtered: int, total: int) -> Row:
        """Return RabbitMQ's fields for a page of `count` items, without the items."""
        return {
            "filtered_count": filtered,
            "item_count": count,
            "page": self.page,
            "page_count": (filtered + self.page_size - 1) // self.page_size,
            "page_size": self.page_size,
            "total_count": total,
        }

    def check_range(self, count: int) -> None:
        """Check that the page begins within the `count` rows, or right after them.

        Raises: PageOutOfRange (400 in HTTP).
        """
        if self.begin > count:
            raise PageOutOfRange(
                f"Page out of range, page: {self.page} page size: {self.page_size}, len: {count}"
            )

    def cut(self, ordered: list[Item], found: int) -> list[Item]:
        """Return the items of the page.

        `ordered` has all `found` items in order, or only the first ones, up to the page's end.

        Raises: PageOutOfRange (400 in HTTP).
        """
        if self.page is None:
            return ordered
        self.check_range(found)
        return ordered[self.begin : self.end]


def wanted_of(query: Mapping[str, str]) -> PageQuery:
    """Parse the options in the query of a request.  Raises: PreconditionFailed (400 in HTTP)."""
    page = _number(query, "page")
    size = _number(query, "page_size")
    if page is not None:
        size = PAGE_ROWS if size is None else size
        if page < 1 or not 1 <= size <= PAGE_ROWS_MAX:
            raise PreconditionFailed(
                f"Invalid pagination parameters: page number {page}, page size {size}; pages are "
                f"counted from 1 and have 1 to {PAGE_ROWS_MAX} rows"
            )
    name = query.get("name", "") if page is not None else ""
    if len(name) > PAGE_FILTER_CHARACTERS_MAX:
        raise PreconditionFailed(f"the filter exceeds {PAGE_FILTER_CHARACTERS_MAX} characters")
    regex = query.get("use_regex", "").lower() == "true"
    return PageQuery(
        page,
        PAGE_ROWS if size is None else size,
        name,
        Pattern(_lowered(name)) if regex and name else None,
        _sorts_of(query),
        query.get("sort_reverse", "").lower() == "true",
        columns_of(query),
    )


def columns_of(query: Mapping[str, str]) -> RowFields | None:
    """Return the columns in the query of a request, or None for all."""
    text = query.get("columns")
    if text is None:
        return None
    return RowFields([part for part in one.split(".") if part] for one in text.split(","))


def _sorts_of(query: Mapping[str, str]) -> tuple[str, ...]:
    """Return the columns that a list is sorted by.  Raises: PreconditionFailed (400 in HTTP)."""
    text = query.get("sort", "")
    # One more than the limit is enough to detect an excess.
    sorts = tuple(one for one in text.split(",", LIST_SORTS_MAX + 1) if one)
    if len(sorts) > LIST_SORTS_MAX or len(text) > PAGE_FILTER_CHARACTERS_MAX:
        # Each column costs memory for each row of the list.
        raise PreconditionFailed(
            f"a list can be sorted by at most {LIST_SORTS_MAX} columns, with at most "
            f"{PAGE_FILTER_CHARACTERS_MAX} characters in all"
        )
    return sorts


def _lowered(pattern: str) -> str:
    """Return a regex for lower-case names; a character after a backslash keeps its meaning."""
    found = ""
    escaped = False
    for character in pattern:
        found += character if escaped else character.lower()
        escaped = character == "\\" and not escaped
    return found


def _number(query: Mapping[str, str], name: str) -> int | None:
    text = query.get(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        raise PreconditionFailed(f"Invalid pagination parameters: {name} is not a number")
    return int(text)


# -- long lists ------------------------------------------------------------------------------------


async def filtered(
    wanted: PageQuery, items: Sequence[Item], name_of: Callable[[Item], str]
) -> list[Item]:
    """Return the items whose names match the filter, case-insensitively.

    Raises: PreconditionFailed (400 in HTTP) for a regex that takes too long.
    """
    if not wanted.name:
        return list(items)
    pattern = wanted.pattern
    text = wanted.name.lower()
    found: list[Item] = []
    paused = 0
    for place, item in enumerate(items, 1):
        name = name_of(item).lower()
        if text in name if pattern is None else pattern.matches(name):
            found.append(item)
        walked = 0 if pattern is None else int(pattern.walked)
        if walked > LIST_PATTERN_STEPS_MAX:
            raise PreconditionFailed(
                "the regex takes too long on these names; use a simpler one, or a part of the "
                "name without use_regex"
            )
        if place % _NAMES_AT_ONCE == 0 or walked - paused > _STEPS_AT_ONCE:
            paused = walked
            await next_slice()
    return found


async def sorted_in_slices(
    items: Sequence[Item],
    key: Callable[[Item], Any] | None,
    reverse: bool = False,
    count: int | None = None,
) -> list[Item]:
    """Return the items sorted, or the first `count` of them; other requests run between slices.

    Without a key the items themselves are compared, which takes half the time.
    """
    itself: Any = key
    runs: list[list[Item]] = []
    left = iter(items)
    while run := list(islice(left, _SORTED_AT_ONCE)):
        run.sort(key=itself, reverse=reverse)
        runs.append(run)
        if len(items) > _SORTED_AT_ONCE:
            await next_slice()
    if len(runs) < 2:
        return runs[0] if runs else []
    # Merging everything in one slice would take as long as all slices before it.
    ordered: list[Item] = []
    merged = islice(heapq.merge(*runs, key=itself, reverse=reverse), count)
    while part := list(islice(merged, _SORTED_AT_ONCE)):
        ordered += part
        await next_slice()
    return ordered


class PageHeap:
    """The smallest `count` items, or the largest with `reverse`; items are added slice by slice.

    If `count` is at most `most`, items outside the result are dropped at once.  Otherwise all items
    are kept and sorted at the end, because merging each slice into a long list is slower.  Items
    must be distinct.
    """

    def __init__(self, count: int, reverse: bool, most: int) -> None:
        self.count = 0
        self._wanted = count
        self._reverse = reverse
        self._all = count > most
        self._items: list[Any] = []

    def add(self, items: Sequence[Any]) -> None:
        """Add items, in any order."""
        self.count += len(items)
        kept = self._items
        if self._all or len(kept) < self._wanted:
            kept.extend(items)
        elif self._reverse:
            last = kept[-1]
            kept.extend([one for one in items if one > last])
        else:
            last = kept[-1]
            kept.extend([one for one in items if one < last])
        if not self._all:
            # The kept items are a sorted run, which Python's sort merges in one pass.
            kept.sort(reverse=self._reverse)
            del kept[self._wanted :]

    async def ordered(self) -> list[Any]:
        """Return the items in order; more than `count` if all items were kept."""
        if not self._all:
            return self._items
        return await sorted_in_slices(self._items, None, self._reverse)


def sort_key(row: Mapping[str, object], sorts: Sequence[str]) -> tuple[tuple[int, Any], ...]:
    """Return the sort key of a row; a missing field counts as 0, as in RabbitMQ."""
    return tuple(comparable(_dotted(row, column)) for column in sorts)


def _dotted(row: object, column: str) -> object:
    value: object = row
    for part in column.split("."):
        if not isinstance(value, Mapping):
            return 0
        value = value.get(part, 0)
    return value


def comparable(value: object) -> tuple[int, Any]:
    """Return a sort key that groups values by kind: numbers, truth values, tables, text."""
    if isinstance(value, bool) or value is None:
        return 1, str(value)
    if isinstance(value, int | float):
        return 0, value
    if isinstance(value, str):
        return 3, value
    return 2, str(value)
