"""Which hosts a request may be for whose user may come from the broker's own machine only.

A page of any site can have its name lead to 127.0.0.1 once it is loaded (DNS rebinding).  Then the
browser takes the broker for that site, so no header tells it from the broker's own page, and the
request comes from the broker's own machine.  What the page knows is the password that everybody
knows, guest's.  But it has to ask for its own name: so such a user has to ask for a name that
leads to this machine by right.  It does not load the framework.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from aiohttp import web

#: A name or an IPv4 address, or an IPv6 address in brackets, and perhaps a port.
_HOST: Final = re.compile(
    r"(?P<name>[^:\[\]@/]*)(:[0-9]{0,5})?|\[(?P<address>[^\]]*)\](:[0-9]{0,5})?"
)

#: How much of a wrong one is shown.
_SHOWN_CHARACTERS: Final = 100


class Misdirected(Exception):
    """A request for a host that its user may not ask for (421); the text says what to do."""


def own_names(*more: str) -> frozenset[str]:
    """Return the names of this machine, and those that are given, as `check_host` compares them."""
    name = socket.gethostname()
    return frozenset(_plain(one) for one in (name, name.partition(".")[0], *more) if one)


def check_host(request: web.Request, user: str, names: Iterable[str]) -> None:
    """Check that a request is for this machine by an address, as localhost, or by one of `names`.

    No browser sends a request without a host.

    Raises: Misdirected (421).
    """
    for host in _hosts(request):
        if not _is_ours(host, names):
            raise Misdirected(
                f"user '{user}' may come from the broker's own machine only (loopback_users), and "
                f"this asks for '{host[:_SHOWN_CHARACTERS]}', which could be any site's name for "
                "it: ask for localhost or an address, add the name to the setting http_hosts, or "
                "use another user"
            )


def _hosts(request: web.Request) -> list[str]:
    """Return what a request names: in its header, and in its target where that is a whole URL."""
    found = [request.headers.get("Host", "")]
    target = request.raw_path
    if not target.startswith("/"):
        try:
            found.append(urlsplit(target).netloc)
        except ValueError:
            found.append(target)
    return [host for host in found if host]


def _is_ours(host: str, names: Iterable[str]) -> bool:
    parts = _HOST.fullmatch(host.strip())
    if parts is None:
        return False
    name = _plain(parts["name"] if parts["address"] is None else parts["address"])
    if name == "localhost" or name.endswith(".localhost") or name in names:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _plain(name: str) -> str:
    """Return a name in small letters, without the dot of the root."""
    return name.lower().removesuffix(".")
