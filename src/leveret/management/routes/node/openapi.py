"""`GET /api/openapi.json`: the description of the API as an OpenAPI 3.1 document.

It is generated from the declarations of the served routes (`api_route`).  The summary of a route is
the first line of its handler's docstring.

Invariants: every served route is in the document; names in braces are parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from aiohttp import web

from leveret import __version__
from leveret.limits import PAGE_FILTER_CHARACTERS_MAX, PAGE_ROWS_MAX
from leveret.management.api_route import DECLARED, FLAG, NUMBER, TABLE, TEXT, ApiRoute, Schema
from leveret.management.paging import PAGE_ROWS
from leveret.management.rights import LOOKING, OPERATOR_ONLY, Right
from leveret.management.routes.shared import json_response

_PART: Final = re.compile(r"\{(\w+)\}")

#: Parameters in paths that are not text or have a description.
_PARTS: Final[dict[str, Schema]] = {
    "vhost": {"description": "A vhost, percent-encoded: `/` is `%2F`."},
    "port": {"schema": NUMBER},
    "within": {"schema": NUMBER},
    "unit": {"schema": {"enum": ["days", "weeks", "months", "years"]}},
    "end": {"schema": {"enum": ["source", "destination"]}},
    "kind": {
        "description": "`q` for a queue, `e` for an exchange.",
        "schema": {"enum": ["q", "e"]},
    },
    "props": {"description": "The `properties_key` of a binding; `~` for the empty key."},
}

#: The query options of every list.
_LISTING: Final[dict[str, Schema]] = {
    "page": {"schema": {"type": "integer", "minimum": 1}},
    "page_size": {
        "schema": {
            "type": "integer",
            "minimum": 1,
            "maximum": PAGE_ROWS_MAX,
            "default": PAGE_ROWS,
        }
    },
    "name": {
        "description": "Only names that contain this text.",
        "schema": {"type": "string", "maxLength": PAGE_FILTER_CHARACTERS_MAX},
    },
    "use_regex": {"description": "Whether `name` is a regex.", "schema": FLAG},
    "sort": {"description": "The columns to sort by, separated by commas.", "schema": TEXT},
    "sort_reverse": {"schema": FLAG},
    "columns": {"description": "The fields to return, separated by commas.", "schema": TEXT},
}

_ERROR: Final[Schema] = {
    "type": "object",
    "required": ["error", "reason"],
    "properties": {"error": TEXT, "reason": TEXT},
}

_FAILURES: Final = {
    "400": ("BadRequest", "The request is invalid; `reason` says why."),
    "401": ("NotAuthorised", "The credentials are missing or wrong, or the user may not do this."),
    "403": ("Forbidden", "The user lacks a permission, or a setting forbids it for all users."),
    "404": ("NotFound", "The object does not exist."),
    "408": ("RequestTimeout", "The body did not arrive in time."),
    "413": ("TooLarge", "The body, or the message, is too large."),
    "415": ("UnsupportedMediaType", "The body is compressed, which is not supported."),
    "417": ("ExpectationFailed", "`Expect` is not `100-continue`."),
    "421": (
        "MisdirectedRequest",
        "The host in a loopback user's request is not known to be the broker's machine.",
    ),
    "503": ("Unavailable", "The broker is busy: try again after `Retry-After` seconds."),
}


def document(routes: Iterable[ApiRoute]) -> Schema:
    """Return the document for some routes."""
    paths: dict[str, dict[str, object]] = {}
    for route in routes:
        entry = paths.setdefault(route.path, {})
        if (parts := _PART.findall(route.path)) and "parameters" not in entry:
            entry["parameters"] = [_part(name) for name in parts]
        entry[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Leveret's HTTP API",
            "version": __version__,
            "description": "RabbitMQ's management API, with additions for streams.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "security": [{"basic": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
            "schemas": {"Error": _ERROR},
            "parameters": {
                name: {"name": name, "in": "query", **found} for name, found in _LISTING.items()
            },
            "responses": {name: _failure(text) for name, text in _FAILURES.values()},
        },
    }


def _part(name: str) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": TEXT, **_PARTS.get(name, {})}


def _failure(text: str) -> Schema:
    schema: Schema = {"$ref": "#/components/schemas/Error"}
    return {"description": text, "content": {"application/json": {"schema": schema}}}


def _operation(route: ApiRoute) -> Schema:
    """Return a route as an operation."""
    path = route.path
    text = _sentence(route)
    found: Schema = {
        "operationId": re.sub(r"\W+", "_", f"{route.method} {path}".lower()).strip("_"),
        "summary": text,
        "description": f"{text}  {_asked(route.right)}",
        "tags": [path.split("/")[2 if path.startswith("/api/") else 1]],
        "responses": _responses(route),
    }
    if route.rows:
        found["parameters"] = [{"$ref": f"#/components/parameters/{one}"} for one in _LISTING]
    if route.method in ("PUT", "POST"):
        found["requestBody"] = _request_body(route)
    return found


def _sentence(route: ApiRoute) -> str:
    """Return the first line of a handler's docstring, or "" if Python removed docstrings (-OO)."""
    text = (route.handler.__doc__ or "").strip().splitlines()
    return text[0].partition("  Raises:")[0] if text else ""


def _asked(right: Right) -> str:
    """Return a sentence about the right that a route requires."""
    if right is OPERATOR_ONLY:
        return "Served on the Unix socket only."
    if not right.tags:
        return "For any user, in vhosts that they may enter."
    return f"For users with one of the tags {', '.join(right.tags)}."


def _responses(route: ApiRoute) -> Schema:
    found: Schema = {}
    if route.answer is not None:
        found["200"] = route.answer
    elif route.method == "GET":
        rows: Schema = {"type": "array", "items": TABLE}
        # A page of a list is an object, with the rows in `items`.
        schema: Schema = {"oneOf": [rows, TABLE]} if route.rows else {}
        found["200"] = {"description": "OK.", "content": {"application/json": {"schema": schema}}}
    else:
        found["2XX"] = {"description": "Done."}
    for status, (name, _) in _FAILURES.items():
        if _may_fail_by(status, route):
            found[status] = {"$ref": f"#/components/responses/{name}"}
    for status, text in route.failures.items():
        if text is not None:
            found[status] = {"description": text}
    return found


def _may_fail_by(status: str, route: ApiRoute) -> bool:
    """Return whether a route can answer with that status."""
    if status == "404":
        # Routes of the Unix socket do not exist on TCP.
        return "{" in route.path or route.right is OPERATOR_ONLY
    if status == "403":
        return not route.right.tags or status in route.failures
    return True


def _request_body(route: ApiRoute) -> Schema:
    schema: Schema = {"type": "object", "properties": route.body}
    if route.required:
        schema["required"] = list(route.required)
    return {
        "required": bool(route.required),
        "content": {"application/json": {"schema": schema}},
    }


async def openapi(request: web.Request) -> web.Response:
    """Return the description of the served routes as an OpenAPI 3.1 document."""
    return json_response(document(request.app[DECLARED].values()))


ROUTES: Final = (ApiRoute("GET", "/api/openapi.json", openapi, LOOKING),)
