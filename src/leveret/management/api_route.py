"""A route of the API: all that is declared about it, in the module of its handler.

From the same declaration the router dispatches requests (`api`), the gate takes the right that a
user needs and whether the request is heavy (`gate`), the log of changes whether the request is
logged (`audit`), and the OpenAPI document its parameters, body and answers (`routes.node.openapi`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from leveret.management.rights import Right

#: A JSON Schema or another object of the OpenAPI document.
Schema = dict[str, object]

TEXT: Final[Schema] = {"type": "string"}
NUMBER: Final[Schema] = {"type": "integer"}
FLAG: Final[Schema] = {"type": "boolean"}
TABLE: Final[Schema] = {"type": "object", "additionalProperties": True}
ANY: Final[Schema] = {}
TAGS: Final[Schema] = {"oneOf": [TEXT, {"type": "array", "items": TEXT}]}

#: The field of a request that sets one limit of a user or a vhost.
LIMIT: Final[Mapping[str, Schema]] = {"value": NUMBER}


@dataclass(frozen=True)
class ApiRoute:
    """A method and a path of the API, with the handler and what the rest of the API must know.

    The first line of the handler's docstring describes the route to clients.  A route also answers
    HEAD if it answers GET, unless `head` is false.
    """

    method: str
    path: str
    handler: Handler
    #: The right that a user needs on TCP.
    right: Right
    #: The fields of the JSON body of a PUT or POST, and the required ones.  Bodies of limits and
    #: definitions may have other fields, which the document does not list.
    body: Mapping[str, Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    #: Whether the answer is a list, of which clients may request a page.
    rows: bool = False
    #: The answer in the OpenAPI document, if it is not JSON.
    answer: Schema | None = None
    #: Statuses of errors beyond those of every route, with descriptions; None for the usual one.
    failures: Mapping[str, str | None] = field(default_factory=dict)
    #: Whether its work or answer grows with the number of objects or messages: only a few such
    #: requests of a user are answered at once.  Routes that wait for something (chunks of a stream,
    #: files of a backup, lines of the log) and long operations of the core (deleting a vhost) are
    #: not heavy, because they have limits of their own.
    heavy: bool = False
    #: Whether a request that changed something is logged, unless it is a GET.  Requests that handle
    #: messages as clients do, keep files for a while, or begin and end sessions are not.
    logged: bool = True
    head: bool = True


#: The routes of an application, by method and path.
DECLARED: Final = web.AppKey("declared", dict[tuple[str, str], ApiRoute])


def route_of(request: web.Request) -> ApiRoute | None:
    """Return the route of a request; None for a path that has none, or not with this method."""
    resource = request.match_info.route.resource
    if resource is None:
        return None
    method = hdrs.METH_GET if request.method == hdrs.METH_HEAD else request.method
    return request.app[DECLARED][method, resource.canonical]
