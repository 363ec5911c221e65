"""The headers matcher: does a message's header table satisfy a binding's arguments?

`x-match` in the arguments says how: `all` (the default) or `any` of the other arguments, of which
those beginning with `x-` do not count; `all-with-x` and `any-with-x` count them too.  A void
argument asks only that the header is there.

Values compare as RabbitMQ compares them: the AMQP type tag does not matter, the value does,
strictly.  So an 8-bit 1 equals a 64-bit 1 and a timestamp of 1 s, and a string equals the byte
array of its UTF-8, while 1, 1.0, true and "1" all differ, and so do decimals of different scale.
Values inside arrays and tables follow the same rule; there RabbitMQ's, which compares the tags
too, is stricter, but a decoded table does not hold the tags of integers.

Invariant: a matcher never changes after it was made, and `matches` changes nothing.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final, final

from leveret.errors import PreconditionFailed

_X_MATCH: Final = "x-match"


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
        self._all = mode in ("all", "all-with-x")
        self._wanted: list[tuple[str, object]] = [
            (name, normal_value(value))
            for name, value in arguments.items()
            if name != _X_MATCH and (with_x or not name.startswith("x-"))
        ]

    def matches(self, headers: dict[str, object]) -> bool:
        """Tell whether `headers` (a decoded table) satisfy the binding.

        Without arguments that count, `all` matches everything and `any` nothing.
        """
        for name, wanted in self._wanted:
            fits = name in headers and (wanted is None or normal_value(headers[name]) == wanted)
            if fits != self._all:
                return fits
        return self._all


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
        sign, digits, exponent = value.as_tuple()
        return ("decimal", sign, digits, exponent)
    # What is left is a timestamp, known by its attribute: `wire` is a neighbour, not below.
    return getattr(value, "seconds", value)
