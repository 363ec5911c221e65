"""Refuses requests that a browser sends for the page of another site.

A browser adds cookies, and Basic credentials that were entered once, to requests from any page.
A request that changes something is therefore refused if the browser's headers show that it comes
from another site's page.  With a session cookie, it also needs a header that no form can send.  A
script of another site would need CORS permission to send it, which the broker never gives.
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from leveret.errors import AccessRefused

#: The header that the page sends with each request, with any value.
PAGE_HEADER: Final = "X-Requested-With"

#: Methods that change nothing.
_SAFE: Final = (hdrs.METH_GET, hdrs.METH_HEAD)

#: `Sec-Fetch-Site` of requests from the same page, or from an address that the user typed.
_OURS: Final = ("same-origin", "none")


def check_origin(request: web.Request) -> None:
    """Check that a request that changes something does not come from another site's page.

    Raises: AccessRefused (403).
    """
    if request.method not in _SAFE and not _is_ours(request):
        raise AccessRefused(
            "the browser says that a page of another site sent this request; a proxy in front of "
            "the broker must keep the header Host, or send X-Forwarded-Host"
        )


def check_session(request: web.Request) -> None:
    """Check the origin of a request with a session cookie, more strictly than `check_origin`.

    Raises: AccessRefused (403).
    """
    if request.headers.get("Sec-Fetch-Site", "none") not in _OURS:
        raise AccessRefused("only the broker's own page can use a session")
    if request.method not in _SAFE and not request.headers.get(PAGE_HEADER):
        raise AccessRefused(f"a change in a session needs the header {PAGE_HEADER}")


def is_page(request: web.Request) -> bool:
    """Return whether a script of a page sent a request, so the browser must not prompt for a login.

    Scripts send `PAGE_HEADER`.  An event stream cannot send additional headers, so the browser's
    own headers are checked too.
    """
    headers = request.headers
    return (
        PAGE_HEADER in headers
        or headers.get("Sec-Fetch-Dest") == "empty"
        or headers.get(hdrs.ACCEPT) == "text/event-stream"
    )


def _is_ours(request: web.Request) -> bool:
    """Return whether the broker's own page may have sent a request, by the browser's headers."""
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
