"""The addresses for `connect`: one URI or several, merged with keyword arguments.

Keyword arguments have the same meaning as the parts of a URI.  If both are given, they must agree;
neither silently overrides the other.

Invariants: no error message contains a password; addresses keep their order.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from leveret.client.names import checked
from leveret.client.uri import Parameters, Said, parameters_of, said_by
from leveret.limits import CLIENT_ADDRESSES_MAX, FRAME_BYTES_MIN

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The types of `connect`'s first argument.
Address = str | Parameters | Sequence[str | Parameters] | None


#: The field of `Parameters` that each keyword argument sets.
PARAMETERS: Final[dict[str, str]] = {
    "host": "host",
    "port": "port",
    "virtual_host": "vhost",
    "user": "username",
    "password": "password",
    "tls": "tls",
    "heartbeat": "heartbeat_seconds",
    "timeout": "connection_timeout_ms",
    "channel_max": "channel_max",
    "frame_max": "frame_max",
}

#: The minimum and maximum of each numeric keyword argument.
NUMBERS: Final[dict[str, tuple[int, int]]] = {
    "port": (1, 65_535),
    "heartbeat": (0, 65_535),
    "channel_max": (0, 65_535),
    "frame_max": (0, 2**31 - 1),
}

#: A comma separates URIs only if another URI follows, because a password may contain a comma.
BETWEEN_URIS: Final = re.compile(r",\s*(?=amqps?://)")


def addresses(uri: Address, given: Mapping[str, object]) -> tuple[Parameters, ...]:
    """Return the addresses in the order in which to try them.

    `given` contains the keyword arguments listed in `PARAMETERS`; None means unset.

    Raises: ValueError for an invalid URI or value, or when a URI and a keyword argument
    contradict each other; TypeError for a value that is neither a URI nor `Parameters`.
    """
    wanted = _said(given)
    found = [_merged(one, wanted) for one in _listed(uri)]
    if not found:
        raise ValueError("the list of addresses is empty: name at least one URI")
    if len(found) > CLIENT_ADDRESSES_MAX:
        raise ValueError(f"{len(found)} addresses; at most {CLIENT_ADDRESSES_MAX} are tried")
    return tuple(found)


def _listed(uri: object) -> list[Said | Parameters]:
    """Return the given addresses as a flat list."""
    if uri is None:
        return [Said()]
    if isinstance(uri, str):
        return [said_by(one) for one in BETWEEN_URIS.split(uri)]
    if isinstance(uri, Parameters):
        return [uri]
    if isinstance(uri, bytes) or not isinstance(uri, Sequence):
        raise TypeError(
            f"an address must be a URI, Parameters, or a list of them, not {type(uri).__name__}"
        )
    return [found for one in uri for found in _listed(one)]


def _merged(one: Said | Parameters, wanted: Said) -> Parameters:
    """Merge the keyword arguments into an address.  Raises: ValueError."""
    if isinstance(one, Parameters):
        if wanted:
            raise ValueError(
                f"Parameters are complete, so {_names(wanted)} cannot be given in addition: "
                "use dataclasses.replace(parameters, ...)"
            )
        return one
    for keyword, name in PARAMETERS.items():
        if name in wanted and name in one and _value(wanted, name) != _value(one, name):
            raise ValueError(_conflict(keyword, name, one, wanted))
    return parameters_of(cast(Said, {**one, **wanted}))


def _value(said: Said, name: str) -> object:
    return cast("Mapping[str, object]", said)[name]


def _names(said: Said) -> str:
    """Return the names of the given keyword arguments."""
    return ", ".join(keyword for keyword, name in PARAMETERS.items() if name in said)


def _conflict(keyword: str, name: str, one: Said, wanted: Said) -> str:
    """Return the error message for a URI and a keyword argument that contradict each other."""
    if name == "tls":
        scheme, other = ("amqps", "amqp") if one["tls"] else ("amqp", "amqps")
        return (
            f"the URI begins with {scheme}:// but tls={wanted['tls']}: "
            f"write {other}://, or leave tls out"
        )
    both = f"{keyword} is given twice and differs"
    if name == "password":
        return f"{both} in the URI and in the keyword argument: leave it out of one of them"
    theirs, ours = _value(one, name), _value(wanted, name)
    unit = " ms" if name == "connection_timeout_ms" else ""
    return (
        f"{both}: {theirs!r}{unit} in the URI, {ours!r}{unit} in the keyword argument; "
        "leave it out of one of them"
    )


def _said(given: Mapping[str, object]) -> Said:
    """Return the parameters set by keyword arguments.  Raises: TypeError, ValueError."""
    said: dict[str, object] = {}
    for keyword, value in given.items():
        if value is not None:
            said[PARAMETERS[keyword]] = _checked(keyword, value)
    return cast(Said, said)


def _checked(keyword: str, value: object) -> object:
    """Check the value of a keyword argument and convert it to the value of its field."""
    if keyword in NUMBERS:
        return _number(keyword, value)
    if keyword == "timeout":
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"timeout must be a number of seconds, not {type(value).__name__}")
        if not (math.isfinite(value) and 0 < value * 1000 < 2**31):
            raise ValueError(f"timeout must be a number of seconds above 0, not {value!r}")
        return max(1, round(value * 1000))
    if keyword == "tls":
        if not isinstance(value, bool):
            raise TypeError(f"tls must be True or False, not {type(value).__name__}")
        return value
    if not isinstance(value, str):
        raise TypeError(f"{keyword} must be a str, not {type(value).__name__}")
    if keyword == "host" and not value:
        raise ValueError("host is empty")
    return checked(keyword, value) if keyword in {"virtual_host", "host"} else value


def _number(keyword: str, value: object) -> int:
    """Check a number against its bounds."""
    least, most = NUMBERS[keyword]
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{keyword} must be an int, not {type(value).__name__}")
    if not least <= value <= most:
        raise ValueError(f"{keyword} must be from {least} to {most}, not {value}")
    if keyword == "frame_max" and 0 < value < FRAME_BYTES_MIN:
        raise ValueError(f"frame_max must be 0 or at least {FRAME_BYTES_MIN}, not {value}")
    return value
