"""Serves the files of the broker's page, which reveal nothing about the broker.

They are served without authentication, because they include the login form.  The page gets all its
data from the routes of the API, with the rights of the logged-in user.

Invariant: a requested path is only looked up in a table of existing files (`pages.assets`).
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from leveret.pages.assets import Asset

#: The page talks to this broker only, runs no inline script, and cannot be framed.
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)

#: The headers of every file.
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
    """Return the middleware that serves the files of the page."""

    @web.middleware
    async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
        # Only the exact path of a file matches, so percent-encoding is not decoded.
        asset = assets.get(request.rel_url.raw_path)
        if asset is None or request.method not in (hdrs.METH_GET, hdrs.METH_HEAD):
            return await handler(request)
        return answer_with(request, asset)

    return answer


def answer_with(request: web.Request, asset: Asset) -> web.Response:
    """Return a file, or 304 if the browser already has it."""
    headers = {
        **SECURITY_HEADERS,
        # Cached but revalidated: a broker of another version has other files.
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
    """Return whether the browser already has the file (RFC 9110, section 13.1.2)."""
    tags = request.headers.get(hdrs.IF_NONE_MATCH, "")
    return any(tag.strip().removeprefix("W/") in (asset.etag, "*") for tag in tags.split(","))


def takes_gzip(request: web.Request) -> bool:
    """Return whether a body may be sent as gzip (RFC 9110, section 12.5.3)."""
    for coding in request.headers.get(hdrs.ACCEPT_ENCODING, "").split(","):
        name, _, parameters = coding.partition(";")
        if name.strip().lower() == "gzip":
            weight = parameters.partition("=")[2].strip()
            return weight.strip("0.") != "" if weight else True
    return False
