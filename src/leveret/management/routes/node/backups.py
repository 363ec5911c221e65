"""Backups over HTTP, for `leveret backup` on another machine and similar clients.

    POST   /api/backups                       begin a backup: no file is removed until it ends
    GET    /api/backups/{backup}/files/{path} send a file, up to its listed size, from `?offset=`
    GET    /api/backups/{backup}              list the files, with checksums of completely sent ones
    DELETE /api/backups/{backup}              end the backup
    GET    /api/backups                       list the backups in progress, with their users

A client reads all files, compares their checksums, and stores them under their paths.  Together
with a manifest, they are a backup (`leveret.cli.backup`).  The client repeats a broken request from
the offset where it broke.  A backup ends if it is not read for `BACKUP_SILENCE_SECONDS_MAX`.

On TCP these routes are for administrators and, by default (setting `http_backup`), only over TLS or
from the broker's own machine, because the files contain all messages and the hashes of passwords.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web

from leveret import __version__
from leveret.errors import NotFound
from leveret.management.api_route import ApiRoute, Schema
from leveret.management.backup.backups import Backup, Backups, NoPlace, Unreadable
from leveret.management.gate import access_of
from leveret.management.rights import ADMINISTRATION
from leveret.management.routes.lists import rows_response
from leveret.management.routes.shared import OPERATOR, Row, json_response, number_of_query

#: `Retry-After` in seconds if too many backups are in progress.
_AGAIN_SECONDS: Final = "60"

#: The largest offset in a query; nothing is sent from an offset after the end of the file.
_BYTES_MAX: Final = 2**62


async def begin(request: web.Request) -> web.Response:
    """Begin a backup: list the files of the data directory, and do not remove any of them."""
    backups = _backups(request)
    if refused := _refused(request, backups):
        return refused
    try:
        backup = await backups.begin(_who(request))
    except NoPlace as full:
        body = {"error": "service_unavailable", "reason": str(full)}
        again = {"Retry-After": _AGAIN_SECONDS}
        return json_response(body, HTTPStatus.SERVICE_UNAVAILABLE, again)
    except Unreadable as fault:
        body = {"error": "internal_error", "reason": str(fault)}
        return json_response(body, HTTPStatus.INTERNAL_SERVER_ERROR)
    where = {"Location": f"/api/backups/{backup.id}"}
    return json_response(_whole(backup), HTTPStatus.CREATED, where)


async def show_all(request: web.Request) -> web.StreamResponse:
    """Return the backups over HTTP that are in progress."""
    backups = _backups(request)
    return await rows_response(request, [_row(one) for one in backups.by_id.values()])


async def show(request: web.Request) -> web.Response:
    """Return a backup with its files, and the checksums of completely sent files."""
    backups = _backups(request)
    return _refused(request, backups) or json_response(_whole(_found(request, backups)))


async def send(request: web.Request) -> web.StreamResponse:
    """Return a file of a backup, from an offset on."""
    backups = _backups(request)
    if refused := _refused(request, backups):
        return refused
    backup = _found(request, backups)
    path = request.match_info["path"]
    if path not in backup.files:
        raise NotFound(f"no file '{path}' in the backup")
    offset = number_of_query(request, "offset", 0, _BYTES_MAX)
    headers = {hdrs.CACHE_CONTROL: "no-store", hdrs.CONTENT_TYPE: "application/octet-stream"}
    response = web.StreamResponse(headers=headers)
    response.content_length = max(0, backup.files[path] - offset)
    await response.prepare(request)
    try:
        await backups.send(backup, path, offset, response.write)
    except Exception:
        # A part of the file has been sent, and must not look complete.
        if request.transport is not None:
            request.transport.abort()
        raise
    await response.write_eof()
    return response


async def end(request: web.Request) -> web.Response:
    """End a backup, so that the broker may remove files again."""
    backups = _backups(request)
    backups.end(_found(request, backups), f"ended {_who(request)}")
    return web.Response(status=HTTPStatus.NO_CONTENT)


def _backups(request: web.Request) -> Backups:
    backups = request.app[OPERATOR].backups
    assert backups is not None, "the API was created without backups"
    return backups


def _found(request: web.Request, backups: Backups) -> Backup:
    """Return the backup in the path, and restart its timeout.  Raises: NotFound (404)."""
    backup = backups.find(request.match_info["backup"])
    if backup is None:
        raise NotFound("the backup does not exist; it may have ended because nothing was read")
    return backup


def _refused(request: web.Request, backups: Backups) -> web.Response | None:
    """Return a refusal if backups are not allowed over this connection, or None."""
    if access_of(request) is None or backups.allowed == "any":
        return None
    reason = ""
    if backups.allowed == "off":
        reason = "the setting http_backup forbids backups over TCP"
    elif not request.secure and not backups.is_local(request.remote or ""):
        reason = "the setting http_backup allows backups over TLS only (https_port)"
    body = {"error": "forbidden", "reason": reason}
    return json_response(body, HTTPStatus.FORBIDDEN) if reason else None


def _who(request: web.Request) -> str:
    """Return the sender of a request, for the log and for lists."""
    access = access_of(request)
    if access is None:
        return "by the operator at the management socket"
    return f"by user '{access.user}' from {request.remote}"


def _row(backup: Backup) -> Row:
    return {
        "id": backup.id,
        "who": backup.who,
        "time_ms": backup.time_ms,
        "durable_group": backup.durable_group,
        "product_version": __version__,
        "uuid": backup.uuid,
        "bytes": backup.bytes,
        "sent": backup.sent,
    }


def _whole(backup: Backup) -> Row:
    files = [
        {"path": path, "bytes": size, "xxh3": backup.digest(path)}
        for path, size in backup.files.items()
    ]
    return {**_row(backup), "files": files}


_FILE: Final[Schema] = {"description": "A file.", "content": {"application/octet-stream": {}}}

#: A setting may forbid all of these routes.
_FORBIDDEN: Final = {"403": None}

ROUTES: Final = (
    ApiRoute("GET", "/api/backups", show_all, ADMINISTRATION, rows=True, failures=_FORBIDDEN),
    ApiRoute(
        "POST",
        "/api/backups",
        begin,
        ADMINISTRATION,
        failures={**_FORBIDDEN, "500": "The data directory cannot be read; `reason` says why."},
    ),
    ApiRoute("GET", "/api/backups/{backup}", show, ADMINISTRATION, failures=_FORBIDDEN),
    ApiRoute("DELETE", "/api/backups/{backup}", end, ADMINISTRATION, failures=_FORBIDDEN),
    ApiRoute(
        "GET",
        "/api/backups/{backup}/files/{path}",
        send,
        ADMINISTRATION,
        answer=_FILE,
        failures=_FORBIDDEN,
        head=False,
    ),
)
