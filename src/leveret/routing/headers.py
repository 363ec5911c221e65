"""Matching of a message's headers against the arguments of headers-exchange bindings.

`x-match` in the arguments selects the mode: `all` (the default) or `any` of the other arguments,
except those that begin with `x-`.  `all-with-x` and `any-with-x` include these.  A void argument
requires only that the header is present.

Values compare as in RabbitMQ: the AMQP type tag is ignored, and the value is compared strictly.  So
an 8-bit 1 equals a 64-bit 1 and a timestamp of 1 s, and a string equals a byte array with the same
UTF-8 bytes.  But 1, 1.0, true and "1" all differ, and so do decimals of different scale.  Values
inside arrays and tables follow the same rule.  RabbitMQ is stricter there and compares the tags
too, but a decoded table does not preserve the tags of integers.

An index finds the bindings that may match a message's headers without testing every matcher.

Invariant: the conditions of a matcher never change after its creation, and `matches` changes
nothing.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final, final

from mypy_extensions import i64

from leveret.errors import PreconditionFailed

_X_MATCH: Final = "x-match"

#: Comparing this many characters of equal strings costs as much as one argument.
_CHARACTERS_PER_LOOK: Final = 1024


@final
class HeadersMatcher:
    """The condition of one binding to a headers exchange.

    Raises: PreconditionFailed (406) for an invalid `x-match`.
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
        #: The names and values (`normal_value`) of the relevant arguments.
        self.wanted: Final[list[tuple[str, object]]] = [
            (name, normal_value(value))
            for name, value in arguments.items()
            if name != _X_MATCH and (with_x or not name.startswith("x-"))
        ]
        #: The cost of comparing all of them, in arguments and nested values.
        self.looks: i64 = 1
        for _, value in self.wanted:
            self.looks += looks_at(value)
        #: The index of the argument under which `HeadersIndex` lists the matcher.
        self.listed: i64 = 0

    def matches(self, headers: dict[str, object]) -> bool:
        """Return whether `headers` (a decoded table) match the binding.

        Without relevant arguments, `all` matches everything and `any` nothing.
        """
        return self.fits(headers, {})

    def fits(self, headers: dict[str, object], normal: dict[str, object]) -> bool:
        """Return what `matches` returns; cache normal forms of compared headers in `normal`."""
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
    """The bindings found by one header: by its value, or by its presence."""

    def __init__(self) -> None:
        # The matcher is None if a binding found here matches without a comparison.
        self.present: dict[object, HeadersMatcher | None] = {}
        self.by_value: dict[object, dict[object, HeadersMatcher | None]] = {}

    def bucket(self, wanted: object) -> dict[object, HeadersMatcher | None] | None:
        """Return the bindings listed under a value, if any."""
        return self.by_value.get(wanted) if is_looked_up(wanted) else self.present

    def grow(self, wanted: object) -> dict[object, HeadersMatcher | None]:
        """Return the bindings listed under a value; create the list if needed."""
        return self.by_value.setdefault(wanted, {}) if is_looked_up(wanted) else self.present


@final
class HeadersIndex:
    """An index that finds targets with matching headers without testing every matcher.

    A matcher for all of its arguments is listed only under the argument with the shortest list.  A
    matcher for any of them is listed under each.  So bindings that have no argument in common with
    the message, or only very common ones, cost nothing.

    `places` counts the entries of all lists and measures the memory of the index.  `looks` counts
    the headers and arguments compared so far and measures the cost independently of the machine.
    """

    def __init__(self) -> None:
        self.places: i64 = 0
        self.looks: i64 = 0
        self._matchers: dict[object, HeadersMatcher] = {}
        self._by_name: dict[str, _Header] = {}
        #: The targets that match all messages.
        self._always: dict[object, None] = {}

    def insert(self, target: object, matcher: HeadersMatcher) -> None:
        """Add a new target."""
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
        """Remove an existing target."""
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
        """Return each target with matching headers once; add the cost to `looks`.

        Stop after about `looks_max`, and return the targets found so far.
        """
        last = self.looks + looks_max
        found: dict[object, None] = dict(self._always)
        normal: dict[str, object] = {}
        by_name = self._by_name
        # Iterate over the smaller set, because a message may have thousands of headers.
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
        """Add the matching targets of one list."""
        for target, matcher in bucket.items():
            self.looks += 1 if matcher is None else matcher.looks
            if self.looks > last:
                break
            if matcher is None or matcher.fits(headers, normal):
                found[target] = None

    def _rarest(self, wanted: list[tuple[str, object]]) -> int:
        """Return the index of the condition with the shortest list."""
        best = 0
        fewest = -1
        for place, (name, value) in enumerate(wanted):
            listed = self._by_name.get(name)
            bucket = None if listed is None else listed.bucket(value)
            size = 0 if bucket is None else len(bucket)
            # Prefer a list by value, because more messages have the header than the value.
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
    """Return whether `by_value` can list a value: any but arrays, tables and void."""
    return normal is not None and not isinstance(normal, (list, dict))


def is_exact(normal: object) -> bool:
    """Return whether a binding found by value, or by header, matches without a comparison."""
    return not isinstance(normal, (list, dict))


def looks_at(normal: object) -> i64:
    """Return the cost of comparing a value, including nested values."""
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
    """Convert a table's value so that `==` is the strict comparison described above.

    Strings and integers, the usual values, stay the same.  Some other values get a tag.
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
        # A decoded string has no lone surrogates, so bytes that are not UTF-8 equal no string.
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, list):
        return [normal_value(item) for item in value]
    if isinstance(value, dict):
        return {name: normal_value(item) for name, item in value.items()}
    if isinstance(value, Decimal):
        # 1.0 and 1.00 are equal, but their strings are not.
        return ("decimal", str(value))
    # Only timestamps remain.  Recognise them by an attribute, as this package cannot import `wire`.
    return getattr(value, "seconds", value)
