"""`GET /api/log/stream`: the last lines of the log, as a list or as server-sent events."""

from __future__ import annotations

import json
import time
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web

from leveret.limits import (
    LOG_TAIL_READERS_MAX,
    LOG_TAIL_READERS_PER_USER_MAX,
    LOG_TAIL_SECONDS_MAX,
)
from leveret.management.api_route import ApiRoute
from leveret.management.gate import access_of
from leveret.management.rights import MONITORING
from leveret.management.routes.lists import rows_response
from leveret.management.routes.shared import OPERATOR, Row, begins, json_response
from leveret.management.sampling.recent_log import LogLine, RecentLog

#: The Accept header that requests an event stream.
_EVENTS: Final = "text/event-stream"

#: The interval of comments, which keep proxies connected and detect disconnected clients.
_BEAT_SECONDS: Final = 15.0

#: The number of lines in one write; a line has at most 1,024 characters, and mostly far less.
_LINES_PER_WRITE: Final = 100

_HEADERS: Final = {
    hdrs.CACHE_CONTROL: "no-cache",
    hdrs.CONTENT_TYPE: _EVENTS,
    # Otherwise nginx would buffer the events.
    "X-Accel-Buffering": "no",
}


async def tail(request: web.Request) -> web.StreamResponse:
    """Return the last lines of the log, and new lines too if an event stream is requested."""
    recent = request.app[OPERATOR].recent
    if request.headers.get(hdrs.ACCEPT) != _EVENTS:
        return await rows_response(request, [_row(line) for line in recent.after(0)[1]])
    access = access_of(request)
    user = "" if access is None else access.user
    reason = ""
    if recent.readers.total() >= LOG_TAIL_READERS_MAX:
        reason = f"{LOG_TAIL_READERS_MAX} clients read the log, which is the limit"
    elif recent.readers[user] >= LOG_TAIL_READERS_PER_USER_MAX:
        most = LOG_TAIL_READERS_PER_USER_MAX
        reason = f"{most} clients of the same user read the log, which is the limit"
    if reason:
        body = {"error": "service_unavailable", "reason": reason}
        return json_response(body, HTTPStatus.SERVICE_UNAVAILABLE, {hdrs.RETRY_AFTER: "5"})
    recent.readers[user] += 1
    try:
        return await _stream(request, recent)
    finally:
        recent.readers[user] -= 1
        if not recent.readers[user]:
            del recent.readers[user]


async def _stream(request: web.Request, recent: RecentLog) -> web.StreamResponse:
    """Send the lines after the client's last line, and then new lines as they are logged."""
    number = _number_of(request, recent)
    response = web.StreamResponse(headers=_HEADERS)
    if not await begins(request, response):
        return response
    until = time.monotonic() + LOG_TAIL_SECONDS_MAX
    while time.monotonic() < until:
        gone, lines = recent.after(number)
        if gone and number:
            text = f"{gone} lines were logged faster than they were read, and are left out"
            await response.write(_event(recent, LogLine(number + gone, "", "warning", text)))
        for begin in range(0, len(lines), _LINES_PER_WRITE):
            part = lines[begin : begin + _LINES_PER_WRITE]
            await response.write(b"".join(_event(recent, line) for line in part))
            number = part[-1].number
        if not lines:
            await response.write(b": the log is still\n\n")
        await recent.grown(number, _BEAT_SECONDS)
    return response


def _number_of(request: web.Request, recent: RecentLog) -> int:
    """Return the number of the client's last line, or 0 if it is not from this process."""
    run, _, number = request.headers.get("Last-Event-ID", "").partition("-")
    known = run == recent.run and number.isascii() and number.isdigit() and len(number) < 19
    return int(number) if known else 0


def _event(recent: RecentLog, line: LogLine) -> bytes:
    """Return a line as one event, in JSON because it contains no line feeds."""
    data = json.dumps(_row(line), ensure_ascii=False)
    return f"id: {recent.run}-{line.number}\ndata: {data}\n\n".encode()


def _row(line: LogLine) -> Row:
    return {"time": line.time, "level": line.level, "text": line.text}


ROUTES: Final = (ApiRoute("GET", "/api/log/stream", tail, MONITORING, rows=True),)
