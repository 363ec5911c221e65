"""Paths with a slash at their end, which some clients put behind the name of a list.

As in RabbitMQ such a path is the one without it: `/api/queues/` is `/api/queues`.  One slash is
left out, and no other: behind a second one there would be a name without characters.  Files of the
page keep their one spelling.  Loads the framework.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage

#: What has no slash at its end.
_ROUTES: Final = ("/api/", "/metrics/")


def leave_out_slash(server: web.Server) -> None:
    """Have the requests of `server`, which is set up, be for the path without its last slash."""
    make = server.request_factory

    def made(
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        path = message.url.raw_path
        if path.endswith("/") and path.startswith(_ROUTES):
            url = message.url.with_path(path[:-1], encoded=True, keep_query=True)
            message = message._replace(url=url)
        return make(message, payload, protocol, writer, task)

    server.request_factory = made
