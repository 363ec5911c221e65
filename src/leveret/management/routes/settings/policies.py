"""Policies and operator policies: `/api/policies` and `/api/operator-policies`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from aiohttp import web

from leveret.broker.policies.policy import Policy, make_policy
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import NotFound
from leveret.management.api_route import NUMBER, TABLE, TEXT, ApiRoute
from leveret.management.bodies import number_of, object_of, table_of, text_of
from leveret.management.fields import plain
from leveret.management.rights import ADMINISTRATION, POLICIES, Right
from leveret.management.routes.lists import as_it_is, stream_rows
from leveret.management.routes.shared import OPERATOR, Row, found_vhost, json_response, seen
from leveret.names import check_new


def _is_operators(request: web.Request) -> bool:
    return request.path.startswith("/api/operator-policies")


def _of(request: web.Request, vhost: Vhost) -> dict[str, Policy]:
    policies = vhost.policies
    return policies.operator_by_name if _is_operators(request) else policies.by_name


async def policies(request: web.Request) -> web.StreamResponse:
    """Return all policies, or those of a vhost."""
    rows: Iterator[Row] = (
        _row(vhost.name, policy)
        for vhost in seen(request)
        for policy in list(_of(request, vhost).values())
    )
    return await stream_rows(request, rows, as_it_is)


async def policy(request: web.Request) -> web.Response:
    """Return one policy."""
    vhost = found_vhost(request)
    found = _of(request, vhost).get(request.match_info["name"])
    if found is None:
        raise NotFound(f"no policy '{request.match_info['name']}' in vhost '{vhost.name}'")
    return json_response(_row(vhost.name, found))


async def put(request: web.Request) -> web.Response:
    """Add a policy, or replace an existing one."""
    body = await object_of(request)
    vhost = found_vhost(request)
    name = request.match_info["name"]
    operators = _is_operators(request)
    made = make_policy(
        name,
        text_of(body, "pattern"),
        table_of(body, "definition"),
        number_of(body, "priority", 0),
        text_of(body, "apply-to", "all"),
        operators,
    )
    new = name not in _of(request, vhost)
    if new:
        check_new(name, "operator policy" if operators else "policy")
    async with request.app[OPERATOR].changing():
        vhost.policies.set(made)
    return web.Response(status=201 if new else 204)


async def delete(request: web.Request) -> web.Response:
    """Delete a policy."""
    vhost = found_vhost(request)
    async with request.app[OPERATOR].changing():
        vhost.policies.clear(request.match_info["name"], _is_operators(request))
    return web.Response(status=204)


def _row(vhost: str, policy: Policy) -> Row:
    """Return a policy as in RabbitMQ's API."""
    return {
        "vhost": vhost,
        "name": policy.name,
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "definition": plain(policy.definition),
        "priority": policy.priority,
    }


#: The fields of a policy, and the names of the required ones.
_BODY: Final = {"pattern": TEXT, "definition": TABLE, "priority": NUMBER, "apply-to": TEXT}
_REQUIRED: Final = ("pattern", "definition")


def _routes(base: str, right: Right) -> tuple[ApiRoute, ...]:
    """Return the routes of the policies, or of the operator policies, at the path `base`."""
    one = base + "/{vhost}/{name}"
    return (
        ApiRoute("GET", base, policies, right, rows=True, heavy=True),
        ApiRoute("GET", base + "/{vhost}", policies, right, rows=True, heavy=True),
        ApiRoute("GET", one, policy, right),
        ApiRoute("PUT", one, put, right, body=_BODY, required=_REQUIRED),
        ApiRoute("DELETE", one, delete, right),
    )


ROUTES: Final = (
    *_routes("/api/policies", POLICIES),
    *_routes("/api/operator-policies", ADMINISTRATION),
)
