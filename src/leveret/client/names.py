"""Checks of names given by an application, before anything is sent.

A broker answers a name that is not UTF-8 by closing the whole connection (501).
"""

from __future__ import annotations

from leveret.limits import SHORT_STRING_BYTES_MAX


def checked(what: str, name: str) -> str:
    """Return `name`, the argument `what` of a method, if it is valid.

    Raises: TypeError if it is not a str; ValueError if it cannot be encoded as UTF-8, or has more
    than 255 bytes.
    """
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a str, not {type(name).__name__}")
    if name.isascii() and len(name) <= SHORT_STRING_BYTES_MAX:
        return name
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        text = f"{what} {name!r} cannot be encoded as UTF-8: it contains a lone surrogate"
        raise ValueError(text) from None
    if size > SHORT_STRING_BYTES_MAX:
        raise ValueError(
            f"{what} {name[:40]!r}… has {size} bytes of UTF-8: "
            f"the maximum is {SHORT_STRING_BYTES_MAX} bytes"
        )
    return name
