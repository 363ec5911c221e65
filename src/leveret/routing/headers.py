"""The headers matcher: does a message's header table satisfy a binding's arguments?

`x-match` in the arguments says how: `all` (the default) or `any` of the other arguments, of which
those beginning with `x-` do not count; `all-with-x` and `any-with-x` count them too.  A void
argument asks only that the header is there.

Values compare as RabbitMQ compares them: the AMQP type tag does not matter, the value does,
strictly.  So an 8-bit 1 equals a 64-bit 1 and a timestamp of 1 s, and a string equals the byte
array of its UTF-8, while 1, 1.0, true and "1" all differ, and so do decimals of different scale.
Values inside arrays and tables follow the same rule; there RabbitMQ's, which compares the tags
too, is stricter, but a decoded table does not hold the tags of integers.

An index finds the bindings that a message's headers may satisfy without asking all matchers.

Invariant: what a matcher wants never changes after it was made, and `matches` changes nothing.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final, final

from mypy_extensions import i64

from leveret.errors import PreconditionFailed

_X_MATCH: Final = "x-match"

#: Characters of equal texts that are compared as fast as an argument is.
_CHARACTERS_PER_LOOK: Final = 1024


@final
class HeadersMatcher:
    """The condition that one binding to a headers exchange makes.

    Raises: PreconditionFailed (406) for an `x-match` that is none of the four words.
    """

    def __init__(self, arguments: dict[str, object]) -> None:
        mode = arguments.get(_X_MATCH, "all")
        if mode not in ("all", "any", "all-with-x", "any-with-x"):
            raise PreconditionFailed(
                f"Invalid x-match field value {mode!r}; "
                "expected all, any, all-with-x, or any-with-x"
            )
        with_x = mode in ("all-with-x", "any-with-x")
        self.wants_all: Final = mode in ("all", "all-with-x")
        #: The names and values (`normal_value`) of the arguments that count.
        self.wanted: Final[list[tuple[str, object]]] = [
            (name, normal_value(value))
            for name, value in arguments.items()
            if name != _X_MATCH and (with_x or not name.startswith("x-"))
        ]
        #: What it takes to compare them all, in arguments and values inside of them.
        self.looks: i64 = 1
        for _, value in self.wanted:
            self.looks += looks_at(value)
        #: The argument under which an index lists it.
        self.listed: i64 = 0

    def matches(self, headers: dict[str, object]) -> bool:
        """Tell whether `headers` (a decoded table) satisfy the binding.

        Without arguments that count, `all` matches everything and `any` nothing.
        """
        return self.fits(headers, {})

    def fits(self, headers: dict[str, object], normal: dict[str, object]) -> bool:
        """Tell the same; the normal forms of the headers that it looks at are kept in `normal`."""
        wants_all = self.wants_all
        for name, wanted in self.wanted:
            fits = name in headers
            if fits and wanted is not None:
                if name not in normal:
                    normal[name] = normal_value(headers[name])
                fits = normal[name] == wanted
            if fits != wants_all:
                return fits
        return wants_all


@final
class _Header:
    """The bindings that are found by one header: by a value of it, or by its being there."""

    def __init__(self) -> None:
        # Each with its matcher, or None where to be found is to match.
        self.present: dict[object, HeadersMatcher | None] = {}
        self.by_value: dict[object, dict[object, HeadersMatcher | None]] = {}

    def bucket(self, wanted: object) -> dict[object, HeadersMatcher | None] | None:
        """Return those that are found by a value, if there are any."""
        return self.by_value.get(wanted) if is_looked_up(wanted) else self.present

    def grow(self, wanted: object) -> dict[object, HeadersMatcher | None]:
        """Return those that are found by a value; make the place where it is missing."""
        return self.by_value.setdefault(wanted, {}) if is_looked_up(wanted) else self.present


@final
class HeadersIndex:
    """Targets with a matcher each, found by headers.

    A matcher that wants all of its arguments is listed under the one that the fewest others are
    listed under, one that wants any of them under each.  So those that have no argument in common
    with the message, or only what all have, cost nothing.

    `places` counts the entries of all lists: what the index takes of the memory.  `looks` counts
    the headers and arguments that were compared so far: the cost, the same on every machine.
    """

    def __init__(self) -> None:
        self.places: i64 = 0
        self.looks: i64 = 0
        self._matchers: dict[object, HeadersMatcher] = {}
        self._by_name: dict[str, _Header] = {}
        #: Those that match all messages.
        self._always: dict[object, None] = {}

    def insert(self, target: object, matcher: HeadersMatcher) -> None:
        """Add a target that is not there."""
        self._matchers[target] = matcher
        if not matcher.wanted:
            if matcher.wants_all:
                self._always[target] = None
                self.places += 1
            return
        if matcher.wants_all:
            matcher.listed = self._rarest(matcher.wanted)
            self._list(target, matcher.wanted[matcher.listed], matcher)
            return
        for condition in matcher.wanted:
            self._list(target, condition, None if is_exact(condition[1]) else matcher)

    def remove(self, target: object) -> None:
        """Take out a target that is there."""
        matcher = self._matchers.pop(target)
        if not matcher.wanted:
            if matcher.wants_all:
                del self._always[target]
                self.places -= 1
        elif matcher.wants_all:
            self._unlist(target, matcher.wanted[matcher.listed])
        else:
            for condition in matcher.wanted:
                self._unlist(target, condition)

    def find(self, headers: dict[str, object], looks_max: i64) -> list[object]:
        """Return the targets whose matchers fit, each once; `looks` grows by what it takes.

        It ends after about `looks_max`, with those that were found until then.
        """
        last = self.looks + looks_max
        found: dict[object, None] = dict(self._always)
        normal: dict[str, object] = {}
        by_name = self._by_name
        # Whichever are fewer: a message has up to thousands of headers.
        names = headers if len(headers) < len(by_name) else by_name
        for name in names:
            self.looks += 1
            if self.looks > last:
                break
            listed = by_name.get(name)
            if listed is None or name not in headers:
                continue
            value = normal_value(headers[name])
            normal[name] = value
            self._fit(listed.present, headers, normal, found, last)
            if is_looked_up(value):
                bucket = listed.by_value.get(value)
                if bucket is not None:
                    self._fit(bucket, headers, normal, found, last)
        return list(found)

    def _fit(
        self,
        bucket: dict[object, HeadersMatcher | None],
        headers: dict[str, object],
        normal: dict[str, object],
        found: dict[object, None],
        last: i64,
    ) -> None:
        """Add those of one list that fit."""
        for target, matcher in bucket.items():
            self.looks += 1 if matcher is None else matcher.looks
            if self.looks > last:
                break
            if matcher is None or matcher.fits(headers, normal):
                found[target] = None

    def _rarest(self, wanted: list[tuple[str, object]]) -> int:
        """Return the place of the condition under which the fewest are listed."""
        best = 0
        fewest = -1
        for place, (name, value) in enumerate(wanted):
            listed = self._by_name.get(name)
            bucket = None if listed is None else listed.bucket(value)
            size = 0 if bucket is None else len(bucket)
            # Where lists are as long, one by a value: messages that have the header are more.
            if not is_looked_up(value):
                size = size * 2 + 1
            if fewest < 0 or size < fewest:
                best, fewest = place, size
            if fewest == 0:
                break
        return best

    def _list(
        self, target: object, condition: tuple[str, object], matcher: HeadersMatcher | None
    ) -> None:
        name, value = condition
        listed = self._by_name.get(name)
        if listed is None:
            listed = self._by_name[name] = _Header()
        bucket = listed.grow(value)
        self.places += 1
        bucket[target] = matcher

    def _unlist(self, target: object, condition: tuple[str, object]) -> None:
        name, value = condition
        listed = self._by_name[name]
        bucket = listed.grow(value)
        self.places -= 1
        del bucket[target]
        if not bucket and is_looked_up(value):
            del listed.by_value[value]
        if not listed.present and not listed.by_value:
            del self._by_name[name]


def is_looked_up(normal: object) -> bool:
    """Tell whether a table finds a value: neither arrays and tables, nor the void that fits all."""
    return normal is not None and not isinstance(normal, (list, dict))


def is_exact(normal: object) -> bool:
    """Tell whether whoever is found by a condition's value, or by its header, meets it."""
    return not isinstance(normal, (list, dict))


def looks_at(normal: object) -> i64:
    """Return what it takes to compare a value: itself and those inside of it."""
    looks: i64 = 1
    if isinstance(normal, list):
        for item in normal:
            looks += looks_at(item)
    elif isinstance(normal, dict):
        for item in normal.values():
            looks += looks_at(item)
    elif isinstance(normal, str):
        looks += len(normal) // _CHARACTERS_PER_LOOK
    return looks


def normal_value(value: object) -> object:
    """Return a form of a table's value in which `==` is the strict comparison described above.

    Text and integers, the usual values, stand for themselves; others get a mark of their kind.
    """
    if isinstance(value, str) or value is None:
        return value
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return ("float", value)
    if isinstance(value, bytes):
        # Text never holds a lone surrogate, so bytes that are not UTF-8 equal no text.
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, list):
        return [normal_value(item) for item in value]
    if isinstance(value, dict):
        return {name: normal_value(item) for name, item in value.items()}
    if isinstance(value, Decimal):
        # 1.0 and 1.00 are equal, but their texts are not.
        return ("decimal", str(value))
    # What is left is a timestamp, known by its attribute: `wire` is a neighbour, not below.
    return getattr(value, "seconds", value)
