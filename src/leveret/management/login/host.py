"""Checks the host in requests of loopback users, against DNS rebinding.

Any site can make its own name resolve to 127.0.0.1 after its page was loaded.  The browser then
treats the broker as that site.  No header distinguishes the page from the broker's own, its
requests come from the broker's machine, and the password of guest is public.  But the header Host
contains the site's own name.  Requests of loopback users must therefore have a host that is known
to be this machine.  This module does not load the framework.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from leveret.management.fields import as_unicode

if TYPE_CHECKING:
    from aiohttp import web

#: A name, an IPv4 address or an IPv6 address in brackets, with an optional port.
_HOST: Final = re.compile(
    r"(?P<name>[^:\[\]@/]*)(:[0-9]{0,5})?|\[(?P<address>[^\]]*)\](:[0-9]{0,5})?"
)

#: The number of characters of a refused host that the error quotes.
_SHOWN_CHARACTERS: Final = 100


class Misdirected(Exception):
    """A request has a host that its user must not use (421); the text gives the remedy."""


def own_names(*more: str) -> frozenset[str]:
    """Return the names of this machine and `more` names, normalized for `check_host`."""
    name = socket.gethostname()
    return frozenset(_plain(one) for one in (name, name.partition(".")[0], *more) if one)


def check_host(request: web.Request, user: str, names: Iterable[str]) -> None:
    """Check that the host of a request is an address, localhost, or one of `names`.

    A request without a host passes, because no browser sends one.

    Raises: Misdirected (421).
    """
    for host in _hosts(request):
        if not _is_ours(host, names):
            shown = as_unicode(host[:_SHOWN_CHARACTERS])
            raise Misdirected(
                f"user '{user}' may connect from the broker's machine only (loopback_users), and "
                f"the host '{shown}' of this request is not known to be that machine: use "
                "localhost or an address, add the name to the setting http_hosts, or use another "
                "user"
            )


def _hosts(request: web.Request) -> list[str]:
    """Return the hosts in the header of a request, and in its target if that is a full URL."""
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
    """Return a name in lower case, without a final dot."""
    return name.lower().removesuffix(".")
