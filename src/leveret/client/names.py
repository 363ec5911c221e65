"""Names that an application gives: what AMQP cannot hold is refused before anything is sent.

A broker answers a name that is no UTF-8 by closing the connection (501), and everything else on it
goes down as well.
"""

from __future__ import annotations

from leveret.limits import SHORT_STRING_BYTES_MAX


def checked(what: str, name: str) -> str:
    """Return `name`, which is the `what` of a method.

    Raises: TypeError for anything but text; ValueError for text that cannot be written as UTF-8, or
    not in 255 bytes.
    """
    if not isinstance(name, str):
        raise TypeError(f"{what} must be a str, not {type(name).__name__}")
    if name.isascii() and len(name) <= SHORT_STRING_BYTES_MAX:
        return name
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        text = f"{what} {name!r} cannot be written as UTF-8: it holds a lone surrogate"
        raise ValueError(text) from None
    if size > SHORT_STRING_BYTES_MAX:
        raise ValueError(
            f"{what} {name[:40]!r}… has {size} bytes of UTF-8: "
            f"at most {SHORT_STRING_BYTES_MAX} bytes can be sent"
        )
    return name
