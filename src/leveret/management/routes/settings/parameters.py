"""Runtime parameters: `/api/parameters` and `/api/global-parameters`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from leveret.broker.broker import Broker
from leveret.broker.parameters import DEFAULT_USER_LIMITS, OPERATOR_POLICY, VHOST_LIMITS
from leveret.errors import NotFound, PreconditionFailed
from leveret.management.api_route import ANY, ApiRoute
from leveret.management.bodies import object_of
from leveret.management.gate import is_administrator, must_administer
from leveret.management.requests.slices import next_slice
from leveret.management.rights import ADMINISTRATION, POLICIES
from leveret.management.routes.lists import SLICE_ROWS, as_it_is, stream_rows
from leveret.management.routes.shared import BROKER, OPERATOR, Row, json_response, seen
from leveret.names import check_new


def _row(broker: Broker, vhost: str, component: str, name: str, value: object) -> Row:
    return {
        "vhost": vhost,
        "component": component,
        "name": name,
        "value": value,
        "running": broker.parameters.runs(component),
    }


def _rows(request: web.Request) -> list[Row]:
    """Return the parameters of a vhost that match the path."""
    broker = request.app[BROKER]
    path = request.match_info
    vhost = path["vhost"]
    return [
        _row(broker, vhost, component, name, value)
        for component, name, value in broker.parameters.of_vhost(vhost)
        if path.get("component", component) == component and path.get("name", name) == name
    ]


async def parameters(request: web.Request) -> web.StreamResponse:
    """Return all parameters, or those of a component, in all vhosts or one."""
    if "vhost" in request.match_info:
        return await stream_rows(request, _rows(request), as_it_is)
    broker = request.app[BROKER]
    wanted = request.match_info.get("component")
    names = [vhost.name for vhost in seen(request)]
    rows: list[Row] = []
    for number, found in enumerate(broker.parameters.of_vhosts(names), 1):
        rows += [_row(broker, *one) for one in found if wanted in (None, one[1])]
        if number % SLICE_ROWS == 0:
            await next_slice()
    return await stream_rows(request, rows, as_it_is)


async def parameter(request: web.Request) -> web.Response:
    """Return one parameter."""
    found = _rows(request)
    if not found:
        path = request.match_info
        of = f"{path['component']} in vhost '{path['vhost']}'"
        raise NotFound(f"no parameter '{path['name']}' of {of}")
    return json_response(found[0])


async def put(request: web.Request) -> web.Response:
    """Set a parameter of a vhost.  Raises: PreconditionFailed (400) for an unknown component."""
    value = await _value(request)
    path = request.match_info
    _check_component(request)
    new = not _rows(request)
    if new:
        check_new(path["component"], "parameter's component")
        check_new(path["name"], "parameter")
    async with request.app[OPERATOR].changing():
        parameters = request.app[BROKER].parameters
        parameters.set(path["vhost"], path["component"], path["name"], value)
    return web.Response(status=201 if new else 204)


async def delete(request: web.Request) -> web.Response:
    """Delete a parameter of a vhost."""
    path = request.match_info
    _check_component(request)
    async with request.app[OPERATOR].changing():
        parameters = request.app[BROKER].parameters
        parameters.clear(path["vhost"], path["component"], path["name"])
    return web.Response(status=204)


async def global_parameters(request: web.Request) -> web.StreamResponse:
    """Return all global parameters."""
    rows: list[Row] = [{"name": n, "value": value} for n, value in _seen(request).items()]
    return await stream_rows(request, rows, as_it_is)


async def global_parameter(request: web.Request) -> web.Response:
    """Return one global parameter."""
    name = request.match_info["name"]
    values = _seen(request)
    if name not in values:
        raise NotFound(f"no global parameter '{name}'")
    return json_response({"name": name, "value": values[name]})


def _seen(request: web.Request) -> Mapping[str, object]:
    """Return the visible global parameters; only administrators see the default user limits."""
    values = request.app[BROKER].parameters.global_values
    if is_administrator(request):
        return values
    return {name: value for name, value in values.items() if name != DEFAULT_USER_LIMITS}


async def put_global(request: web.Request) -> web.Response:
    """Set a global parameter."""
    value = await _value(request)
    name = request.match_info["name"]
    parameters = request.app[BROKER].parameters
    new = name not in parameters.global_values
    if new:
        check_new(name, "global parameter")
    async with request.app[OPERATOR].changing():
        parameters.set_global(name, value)
    return web.Response(status=201 if new else 204)


async def delete_global(request: web.Request) -> web.Response:
    """Delete a global parameter."""
    async with request.app[OPERATOR].changing():
        request.app[BROKER].parameters.clear_global(request.match_info["name"])
    return web.Response(status=204)


def _check_component(request: web.Request) -> None:
    """Check that the user may set parameters of a component, since some restrict other users.

    Raises: Barred (401 in HTTP).
    """
    if request.match_info["component"] in (OPERATOR_POLICY, VHOST_LIMITS):
        must_administer(request)


async def _value(request: web.Request) -> object:
    body = await object_of(request)
    if "value" not in body:
        raise PreconditionFailed("the field 'value' is missing")
    return body["value"]


ROUTES: Final = (
    ApiRoute("GET", "/api/parameters", parameters, POLICIES, rows=True, heavy=True),
    ApiRoute("GET", "/api/parameters/{component}", parameters, POLICIES, rows=True, heavy=True),
    ApiRoute(
        "GET", "/api/parameters/{component}/{vhost}", parameters, POLICIES, rows=True, heavy=True
    ),
    ApiRoute("GET", "/api/parameters/{component}/{vhost}/{name}", parameter, POLICIES),
    ApiRoute(
        "PUT",
        "/api/parameters/{component}/{vhost}/{name}",
        put,
        POLICIES,
        body={"value": ANY},
        required=("value",),
    ),
    ApiRoute("DELETE", "/api/parameters/{component}/{vhost}/{name}", delete, POLICIES),
    ApiRoute("GET", "/api/global-parameters", global_parameters, POLICIES, rows=True, heavy=True),
    ApiRoute("GET", "/api/global-parameters/{name}", global_parameter, POLICIES),
    ApiRoute(
        "PUT",
        "/api/global-parameters/{name}",
        put_global,
        ADMINISTRATION,
        body={"value": ANY},
        required=("value",),
    ),
    ApiRoute("DELETE", "/api/global-parameters/{name}", delete_global, ADMINISTRATION),
)
