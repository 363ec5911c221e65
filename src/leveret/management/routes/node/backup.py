"""`POST /api/backup`: prevents the removal of files in the data directory during the request.

The answer begins with a line of JSON, once everything recorded so far is synced and no file is
removed any more.  The client then copies the files.  It sends a byte of the request's body from
time to time, and ends the body after the last file.  The last line of the answer contains whether
the files were held until then.  The hold ends early if the client disconnects or is silent for
`BACKUP_SILENCE_SECONDS_MAX`.
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
    """Prevent the removal of files until the client ends the body of its request."""
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
    # The client may have disconnected.
    with contextlib.suppress(OSError):
        await response.write(json.dumps({"lasted": lasted}).encode() + b"\n")
        await response.write_eof()
    return response


async def _listen(request: web.Request) -> bool:
    """Wait for the end of the body; return False if the client disconnects or is silent."""
    while True:
        try:
            async with timeout(request.app[CLOCK], BACKUP_SILENCE_SECONDS_MAX):
                heard = await request.content.readany()
        except (TimeoutError, OSError):
            return False
        if not heard:
            return True


ROUTES: Final = (ApiRoute("POST", "/api/backup", hold, OPERATOR_ONLY, logged=False),)
