"""The check of the host in requests of loopback users, against DNS rebinding.

Any site can make its own name resolve to 127.0.0.1 after its page was loaded.  The browser then
takes the broker for that site: no header distinguishes the page from the broker's own, the request
comes from the broker's machine, and the page knows the password of guest, which is public.  But
its requests name its own host.  Requests of loopback users must therefore name a host that is
known to be this machine.  This module does not load the framework.
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

#: How many characters of a refused host are shown.
_SHOWN_CHARACTERS: Final = 100


class Misdirected(Exception):
    """A request names a host that its user must not use (421); the text gives the remedy."""


def own_names(*more: str) -> frozenset[str]:
    """Return the names of this machine and `more` names, in the form that `check_host` compares."""
    name = socket.gethostname()
    return frozenset(_plain(one) for one in (name, name.partition(".")[0], *more) if one)


def check_host(request: web.Request, user: str, names: Iterable[str]) -> None:
    """Check that a request names an address, localhost, or one of `names` as its host.

    A request without a host passes: no browser sends one.

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
    """Return the hosts of a request: in its header, and in its target if that is a whole URL."""
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
