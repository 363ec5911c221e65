"""Reads the body of a request, with a timeout, after sending 100 Continue if it is expected."""

from __future__ import annotations

from aiohttp import web

from leveret.clock import Clock
from leveret.limits import HTTP_BODY_SECONDS_MAX
from leveret.management.alarm import timeout
from leveret.management.connections.connection import HttpConnection


async def read_whole(request: web.Request, clock: Clock) -> None:
    """Read the whole body of a request.

    Raises: HTTPRequestTimeout (408) if it does not arrive in time; HTTPExpectationFailed (417).
    """
    if request.can_read_body:
        await _go_on(request)
        connection = request.protocol
        assert isinstance(connection, HttpConnection)
        connection.awaits_body()
        try:
            async with timeout(clock, HTTP_BODY_SECONDS_MAX):
                await request.read()
        except TimeoutError:
            raise web.HTTPRequestTimeout from None
        finally:
            connection.has_body()


async def _go_on(request: web.Request) -> None:
    """Send 100 Continue to a client that waits for it.  Raises: HTTPExpectationFailed (417)."""
    expected = request.headers.get("Expect", "").lower()
    if expected not in ("", "100-continue"):
        raise web.HTTPExpectationFailed
    if expected and not request.content.is_eof():
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        # 100 Continue is not part of the answer.
        request.writer.output_size = 0
