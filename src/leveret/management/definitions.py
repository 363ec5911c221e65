"""Definitions as JSON: bytes to tables and back; the tables are `broker.definitions`.

Values of arguments that JSON has no form for are written as the rest of the API writes them: bytes
as base 64, a time as seconds.
"""

from __future__ import annotations

import msgspec

from leveret import __version__
from leveret.broker.values.arguments import Arguments
from leveret.errors import PreconditionFailed
from leveret.management.fields import plain


def read_definitions(data: bytes) -> Arguments:
    """Return what a definitions file holds.  Raises: PreconditionFailed (406) for no object."""
    try:
        found = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise PreconditionFailed(f"the definitions are not JSON: {error}") from None
    except RecursionError:
        raise PreconditionFailed("the definitions nest too deep") from None
    if not isinstance(found, dict):
        raise PreconditionFailed("the definitions should be an object")
    return found


def write_definitions(definitions: Arguments, rabbit_version: str) -> bytes:
    """Return definitions as a file has them; `rabbit_version` is what the broker says it is."""
    head: Arguments = {
        "rabbit_version": rabbit_version,
        "rabbitmq_version": rabbit_version,
        "product_name": "Leveret",
        "product_version": __version__,
    }
    text = msgspec.json.encode(plain({**head, **definitions}))
    return msgspec.json.format(text, indent=1)
