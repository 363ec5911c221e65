"""Paths with a trailing slash, which some clients put after the name of a list.

As in RabbitMQ, such a path is equivalent to the one without it: `/api/queues/` is `/api/queues`.
Only one slash is removed, since a second one would follow an empty name.  Files of the page keep
their one spelling.  Loads the framework.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import StreamReader, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http import RawRequestMessage

#: The prefixes of paths whose trailing slash is removed.
_ROUTES: Final = ("/api/", "/metrics/")


def leave_out_slash(server: web.Server) -> None:
    """Make `server`, which is set up, remove a trailing slash from the paths of its requests."""
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
