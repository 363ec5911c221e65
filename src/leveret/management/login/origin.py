"""Which requests a browser sends for the broker's own page, and which for a page of others.

A browser adds a cookie, and Basic credentials that it was once told, to requests that any page
makes it send.  What changes something is therefore refused where the browser says that another
site's page sends it, and a session's cookie counts only beside a header that no form can send
(a script of another site would have to ask first, which is never allowed here).
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from leveret.errors import AccessRefused

#: The header that the page sends with each request, with any value.
PAGE_HEADER: Final = "X-Requested-With"

#: What changes nothing.
_SAFE: Final = (hdrs.METH_GET, hdrs.METH_HEAD)

#: What browsers say of a request of the same page, or of an address that somebody typed.
_OURS: Final = ("same-origin", "none")


def check_origin(request: web.Request) -> None:
    """Check that a request that changes something is not one of another site's page.

    Raises: AccessRefused (403).
    """
    if request.method not in _SAFE and not _is_ours(request):
        raise AccessRefused(
            "the browser says that a page of another site sends this; a proxy before the broker "
            "must keep the header Host, or send X-Forwarded-Host"
        )


def check_session(request: web.Request) -> None:
    """Check the same, and more, of a request that rests on a cookie.

    Raises: AccessRefused (403).
    """
    if request.headers.get("Sec-Fetch-Site", "none") not in _OURS:
        raise AccessRefused("a session is for the broker's own page")
    if request.method not in _SAFE and not request.headers.get(PAGE_HEADER):
        raise AccessRefused(f"a change by a session needs the header {PAGE_HEADER}")


def is_page(request: web.Request) -> bool:
    """Tell whether a script of a page sends a request: the browser then must not ask for a user.

    Scripts send the header, or are known by what browsers say; a stream of events can send none.
    """
    headers = request.headers
    return (
        PAGE_HEADER in headers
        or headers.get("Sec-Fetch-Dest") == "empty"
        or headers.get(hdrs.ACCEPT) == "text/event-stream"
    )


def _is_ours(request: web.Request) -> bool:
    """Tell whether no browser says that a request is of another site's page."""
    said = request.headers.get("Sec-Fetch-Site")
    if said is not None:
        return said in _OURS
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is None:
        return True
    try:
        place = urlsplit(origin).netloc.lower()
    except ValueError:
        return False
    hosts = (request.headers.get(hdrs.HOST), request.headers.get("X-Forwarded-Host"))
    return place in [host.lower() for host in hosts if host]
