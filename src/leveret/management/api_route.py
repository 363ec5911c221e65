"""The declaration of an API route, which the module of its handler makes.

`api` dispatches requests by it, `gate` checks the right of the user and limits heavy requests,
`audit` logs changes, and `routes.node.openapi` describes parameters, body and answers.
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

#: The body of a request that sets one limit of a user or a vhost.
LIMIT: Final[Mapping[str, Schema]] = {"value": NUMBER}


@dataclass(frozen=True)
class ApiRoute:
    """A method and a path of the API, with its handler, right, body and answers.

    The first line of the handler's docstring describes the route to clients.  A route also answers
    HEAD if it answers GET, unless `head` is false.
    """

    method: str
    path: str
    handler: Handler
    #: The right that a user needs on TCP.
    right: Right
    #: The fields of the JSON body of a PUT or POST, and the names of the required ones.  Bodies of
    #: limits and definitions may have other fields, which the OpenAPI document does not list.
    body: Mapping[str, Schema] = field(default_factory=dict)
    required: tuple[str, ...] = ()
    #: Whether the answer is a list that clients may request page by page.
    rows: bool = False
    #: The answer in the OpenAPI document, if it is not JSON.
    answer: Schema | None = None
    #: Statuses of errors beyond those of every route, with descriptions; None for the usual one.
    failures: Mapping[str, str | None] = field(default_factory=dict)
    #: Whether the work or the answer grows with the number of objects or messages.  Only a few
    #: heavy requests of a user are answered at once.  Routes that wait for something (chunks of a
    #: stream, files of a backup, lines of the log) and long operations of the core (deleting a
    #: vhost) are not heavy, because they have limits of their own.
    heavy: bool = False
    #: Whether a request other than GET is logged if it changed something.  Not logged are requests
    #: that handle messages as clients do, make backups, or begin and end sessions.
    logged: bool = True
    head: bool = True


#: The routes of an application, by method and path.
DECLARED: Final = web.AppKey("declared", dict[tuple[str, str], ApiRoute])


def route_of(request: web.Request) -> ApiRoute | None:
    """Return the route of a request, or None if no route has its path and method."""
    resource = request.match_info.route.resource
    if resource is None:
        return None
    method = hdrs.METH_GET if request.method == hdrs.METH_HEAD else request.method
    return request.app[DECLARED][method, resource.canonical]
