"""Serving the broker's page: files that anybody may have, since they say nothing of the broker.

They are answered before anybody is asked who he is: the form to log in is one of them.  All that
the page shows comes from the routes of the API, with the rights of who logged in.

Invariant: what a request names is looked up in a table of what there is (`pages.assets`).
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from leveret.pages.assets import Asset

#: The page loads and asks nothing but this broker, runs no script of a document's text, and is
#: shown in no frame.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)

#: What every file is sent with.
SECURITY_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def serving(assets: Mapping[str, Asset]) -> Middleware:
    """Return the middleware that answers a request for a file of the page."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        # The path as it was sent: every file has one spelling.
        asset = assets.get(request.rel_url.raw_path)
        if asset is None or request.method not in (hdrs.METH_GET, hdrs.METH_HEAD):
            return await handler(request)
        return answer_with(request, asset)

    return answer


def answer_with(request: web.Request, asset: Asset) -> web.Response:
    """Return a file, or that it is the one that the browser has."""
    headers = {
        **SECURITY_HEADERS,
        # It may be kept, and is asked for again: a broker of another version has other files.
        hdrs.CACHE_CONTROL: "no-cache",
        hdrs.ETAG: asset.etag,
        hdrs.VARY: "Accept-Encoding",
    }
    if _has(request, asset):
        return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
    headers[hdrs.CONTENT_TYPE] = asset.type
    if takes_gzip(request):
        headers[hdrs.CONTENT_ENCODING] = "gzip"
        return web.Response(body=asset.compressed, headers=headers)
    return web.Response(body=asset.body, headers=headers)


def _has(request: web.Request, asset: Asset) -> bool:
    """Tell whether the browser has the file already (RFC 9110, section 13.1.2)."""
    tags = request.headers.get(hdrs.IF_NONE_MATCH, "")
    return any(tag.strip().removeprefix("W/") in (asset.etag, "*") for tag in tags.split(","))


def takes_gzip(request: web.Request) -> bool:
    """Tell whether a body may be sent as gzip (RFC 9110, section 12.5.3)."""
    for coding in request.headers.get(hdrs.ACCEPT_ENCODING, "").split(","):
        name, _, parameters = coding.partition(";")
        if name.strip().lower() == "gzip":
            weight = parameters.partition("=")[2].strip()
            return weight.strip("0.") != "" if weight else True
    return False
