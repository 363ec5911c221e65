"""The description of the API as one OpenAPI 3.1 document, made from the routes that are served.

Paths, methods and texts are taken from the routes and their handlers, rights from `rights`.
The tables here add the rest: which answers are lists, and the fields of bodies.

Invariants: every route that is served is in the document; names in braces are parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from aiohttp import web

from leveret import __version__
from leveret.limits import PAGE_FILTER_CHARACTERS_MAX, PAGE_ROWS_MAX
from leveret.management.paging import PAGE_ROWS
from leveret.management.rights import OPERATOR, Right, right_of

Schema = dict[str, object]

TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "integer"}
FLAG: Final[Schema] = {"type": "boolean"}
TABLE: Final[Schema] = {"type": "object", "additionalProperties": True}
ANY: Final[Schema] = {}
TAGS: Final[Schema] = {"oneOf": [TEXT, {"type": "array", "items": TEXT}]}
OFFSET: Final[Schema] = {"oneOf": [NUMBER, {"enum": ["first", "last", "next"]}]}

#: The fields of a body, and the required ones.
Body = tuple[dict[str, Schema], tuple[str, ...]]

_POLICY: Final[Body] = (
    {"pattern": TEXT, "definition": TABLE, "priority": NUMBER, "apply-to": TEXT},
    ("pattern", "definition"),
)
_VALUE: Final[Body] = ({"value": ANY}, ("value",))
_LIMIT: Final[Body] = ({"value": NUMBER}, ("value",))
_NONE: Final[Body] = ({}, ())

#: The bodies of PUT and POST, by method and path; bodies of limits and definitions may have other
#: fields too.
BODIES: Final[dict[str, Body]] = {
    "PUT /api/cluster-name": ({"name": TEXT}, ("name",)),
    "PUT /api/vhosts/{vhost}": (
        {
            "description": TEXT,
            "tags": TAGS,
            "default_queue_type": TEXT,
            "strict_keys": FLAG,
            "protected_from_deletion": FLAG,
        },
        (),
    ),
    "POST /api/vhosts/{vhost}/deletion/protection": _NONE,
    "PUT /api/vhost-limits/{vhost}": _NONE,
    "PUT /api/vhost-limits/{vhost}/{name}": _LIMIT,
    "PUT /api/users/{user}": (
        {"password": TEXT, "password_hash": TEXT, "hashing_algorithm": TEXT, "tags": TAGS},
        (),
    ),
    "POST /api/users/bulk-delete": (
        {"users": {"type": "array", "items": TEXT}},
        ("users",),
    ),
    "PUT /api/user-limits/{user}": _NONE,
    "PUT /api/user-limits/{user}/{name}": _LIMIT,
    "PUT /api/permissions/{vhost}/{user}": (
        {"configure": TEXT, "write": TEXT, "read": TEXT},
        ("configure", "write", "read"),
    ),
    "PUT /api/topic-permissions/{vhost}/{user}": (
        {"exchange": TEXT, "write": TEXT, "read": TEXT},
        ("exchange", "write", "read"),
    ),
    "PUT /api/policies/{vhost}/{name}": _POLICY,
    "PUT /api/operator-policies/{vhost}/{name}": _POLICY,
    "PUT /api/parameters/{component}/{vhost}/{name}": _VALUE,
    "PUT /api/global-parameters/{name}": _VALUE,
    "POST /api/all-configuration": _NONE,
    "POST /api/definitions": _NONE,
    "PUT /api/feature-flags/{name}/enable": _NONE,
    "POST /api/rebalance/queues": _NONE,
    "POST /api/vhosts/{vhost}/start/{name}": _NONE,
    "POST /api/definitions/{vhost}": _NONE,
    "PUT /api/queues/{vhost}/{name}": (
        {"durable": FLAG, "auto_delete": FLAG, "arguments": TABLE},
        (),
    ),
    "POST /api/queues/{vhost}/{name}/actions": (
        {"action": {"enum": ["sync", "cancel_sync"]}},
        ("action",),
    ),
    "POST /api/queues/{vhost}/{name}/get": (
        {
            "count": NUMBER,
            "ackmode": {
                "enum": [
                    "ack_requeue_true",
                    "ack_requeue_false",
                    "reject_requeue_true",
                    "reject_requeue_false",
                ]
            },
            "encoding": {"enum": ["auto", "base64"]},
            "truncate": NUMBER,
        },
        ("count", "ackmode", "encoding"),
    ),
    "POST /api/queues/{vhost}/{name}/move": (
        {"to": TEXT, "count": NUMBER, "reason": TEXT, "queue": TEXT},
        ("to",),
    ),
    "POST /api/queues/{vhost}/{name}/rewind": ({"timestamp": NUMBER}, ("timestamp",)),
    "POST /api/queues/{vhost}/{name}/browse": (
        {
            "count": NUMBER,
            "after": NUMBER,
            "position": NUMBER,
            "routing-key": TEXT,
            "headers": TABLE,
            "truncate": NUMBER,
        },
        (),
    ),
    "PUT /api/exchanges/{vhost}/{name}": (
        {
            "type": TEXT,
            "durable": FLAG,
            "auto_delete": FLAG,
            "internal": FLAG,
            "arguments": TABLE,
        },
        (),
    ),
    "POST /api/exchanges/{vhost}/{name}/publish": (
        {
            "routing_key": TEXT,
            "payload": TEXT,
            "payload_encoding": {"enum": ["string", "base64"]},
            "properties": TABLE,
        },
        ("routing_key", "payload", "payload_encoding", "properties"),
    ),
    "POST /api/exchanges/{vhost}/{name}/route": (
        {"routing_key": TEXT, "headers": TABLE},
        ("routing_key",),
    ),
    "POST /api/bindings/{vhost}/e/{source}/{kind}/{destination}": (
        {"routing_key": TEXT, "arguments": TABLE},
        (),
    ),
    "PUT /api/publishers/{vhost}/{queue}/{publisher}/owner/{user}": _NONE,
    "PUT /api/sinks/{vhost}/{sink}/owner/{user}": _NONE,
    "PUT /api/streams/{vhost}/{name}/consumers/{consumer}": ({"offset": OFFSET}, ("offset",)),
    "PUT /api/streams/{vhost}/{name}/consumers/{consumer}/owner/{user}": _NONE,
    "PUT /api/super-streams/{vhost}/{name}": (
        {"partitions": NUMBER, "arguments": TABLE},
        ("partitions",),
    ),
    "POST /api/backup": _NONE,
    "POST /api/backups": _NONE,
    # Basic credentials work here as everywhere.
    "POST /api/login": _NONE,
    "POST /api/logout": _NONE,
}

#: Paths that do not end in a name, but answer with one object or without JSON.
_OBJECTS: Final = re.compile(
    r"/api/(overview|version|whoami|auth|cluster-name|config/effective|definitions|all-configuration"
    r"|openapi\.json)$"
    r"|\}/memory$|/(relative|offset|chunks)$|/api/(health|healthchecks|aliveness-test)/|^/metrics"
)

#: Paths that end in a name, but answer with a list: of a vhost, a user, a component.
_LISTS_OF: Final = re.compile(
    r"/api/(queues|exchanges|bindings|consumers|policies|operator-policies|vhost-limits|user-limits"
    r"|streams|super-streams|sinks)/\{(vhost|user)\}$|/parameters/\{component\}(/\{vhost\})?$"
    r"|/username/\{user\}$|/\{kind\}/\{destination\}$|/bindings/\{end\}$|/publishers/\{vhost\}"
    r"/\{queue\}$|/topic-permissions/\{vhost\}/\{user\}$|/auth/attempts/\{name\}$"
)

_PART: Final = re.compile(r"\{(\w+)\}")

#: Names in paths that are not text, or need a description.
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


def is_list(path: str) -> bool:
    """Return whether GET of a path answers with a list."""
    if path.endswith("}"):
        return _LISTS_OF.search(path) is not None
    return _OBJECTS.search(path) is None


def document(routes: Iterable[web.AbstractRoute]) -> Schema:
    """Return the document for some routes."""
    paths: dict[str, dict[str, object]] = {}
    for route in routes:
        if route.resource is None or route.method not in ("GET", "PUT", "POST", "DELETE"):
            continue
        path = route.resource.canonical
        entry = paths.setdefault(path, {})
        if (parts := _PART.findall(path)) and "parameters" not in entry:
            entry["parameters"] = [_part(name) for name in parts]
        entry[route.method.lower()] = _operation(route, path)
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


def _operation(route: web.AbstractRoute, path: str) -> Schema:
    """Return a route as an operation."""
    key = f"{route.method} {path}"
    text = _sentence(route)
    found: Schema = {
        "operationId": re.sub(r"\W+", "_", key.lower()).strip("_"),
        "summary": text,
        "description": f"{text}  {_asked(right_of(route.method, path))}",
        "tags": [path.split("/")[2 if path.startswith("/api/") else 1]],
        "responses": _responses(route.method, path, right_of(route.method, path)),
    }
    if route.method == "GET" and is_list(path):
        found["parameters"] = [{"$ref": f"#/components/parameters/{one}"} for one in _LISTING]
    if key in BODIES:
        found["requestBody"] = _request_body(*BODIES[key])
    return found


def _sentence(route: web.AbstractRoute) -> str:
    """Return the first line of a handler's docstring; empty if Python stripped docstrings (-OO)."""
    text = (route.handler.__doc__ or "").strip().splitlines()
    return text[0].partition("  Raises:")[0] if text else ""


def _asked(right: Right) -> str:
    """Return the sentence about the right that a route needs."""
    if right is OPERATOR:
        return "Served on the Unix socket only."
    if not right.tags:
        return "For any user, in vhosts that they may enter."
    return f"For users with one of the tags {', '.join(right.tags)}."


def _responses(method: str, path: str, right: Right) -> Schema:
    found: Schema = {}
    if path.startswith("/metrics"):
        found["200"] = {"description": "Metrics.", "content": {"text/plain": {"schema": TEXT}}}
    elif path.endswith("/chunks"):
        found["200"] = {"description": "Chunks.", "content": {"application/octet-stream": {}}}
    elif path.endswith("/files/{path}"):
        found["200"] = {"description": "A file.", "content": {"application/octet-stream": {}}}
    elif method == "GET":
        rows: Schema = {"type": "array", "items": TABLE}
        # A page of a list is an object, with the rows in `items`.
        schema: Schema = {"oneOf": [rows, TABLE]} if is_list(path) else {}
        found["200"] = {"description": "OK.", "content": {"application/json": {"schema": schema}}}
    else:
        found["2XX"] = {"description": "Done."}
    for status, (name, _) in _FAILURES.items():
        if _may_fail_by(status, path, right):
            found[status] = {"$ref": f"#/components/responses/{name}"}
    if path.startswith("/api/health/"):
        found["503"] = {"description": "The check failed; `reason` says why."}
    if path == "/api/backups" and method == "POST":
        found["500"] = {"description": "The data directory cannot be read; `reason` says why."}
    return found


def _may_fail_by(status: str, path: str, right: Right) -> bool:
    """Return whether a route can answer with that status."""
    if status == "404":
        # Routes of the Unix socket do not exist on TCP.
        return "{" in path or right is OPERATOR
    if status == "403":
        return not right.tags or path.startswith("/api/backups")
    return True


def _request_body(fields: dict[str, Schema], required: tuple[str, ...]) -> Schema:
    schema: Schema = {"type": "object", "properties": fields}
    if required:
        schema["required"] = list(required)
    return {
        "required": bool(required),
        "content": {"application/json": {"schema": schema}},
    }
