"""`POST /api/backup`: keep all files of the data directory while the request lasts.

The answer begins with one line of JSON, when everything recorded so far is synced and the files
are held.  The client then copies files, sends a byte of its request's body now and then, and ends
the body when it is done; the answer ends with a line that says whether the hold lasted until then.
The hold ends early if the client disconnects or is silent for `BACKUP_SILENCE_SECONDS_MAX`.
"""

from __future__ import annotations

import contextlib
import json
import time
from typing import Final

from aiohttp import web

from leveret import __version__
from leveret.limits import BACKUP_SILENCE_SECONDS_MAX
from leveret.management.alarm import timeout
from leveret.management.api_route import ApiRoute
from leveret.management.rights import OPERATOR_ONLY
from leveret.management.routes.shared import BROKER, CLOCK, OPERATOR


async def hold(request: web.Request) -> web.StreamResponse:
    """Hold the files until the client ends its request."""
    journal = request.app[BROKER].core.journal
    operator = request.app[OPERATOR]
    operator.begin()
    response = web.StreamResponse(headers={"Content-Type": "application/jsonl"})
    async with operator.holding():
        await operator.durable()
        begun = {
            "product_version": __version__,
            "durable_group": int(journal.durable_group),
            "time_ms": time.time_ns() // 1_000_000,
        }
        await response.prepare(request)
        await response.write(json.dumps(begun).encode() + b"\n")
        lasted = await _listen(request)
    # The client may be gone.
    with contextlib.suppress(OSError):
        await response.write(json.dumps({"lasted": lasted}).encode() + b"\n")
        await response.write_eof()
    return response


async def _listen(request: web.Request) -> bool:
    """Wait for the end of the request's body; return False if the client is gone or silent."""
    while True:
        try:
            async with timeout(request.app[CLOCK], BACKUP_SILENCE_SECONDS_MAX):
                heard = await request.content.readany()
        except (TimeoutError, OSError):
            return False
        if not heard:
            return True


ROUTES: Final = (ApiRoute("POST", "/api/backup", hold, OPERATOR_ONLY, logged=False),)
