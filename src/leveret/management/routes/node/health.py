"""`/api/health/checks/…` and their older forms: health checks, for tools that restart brokers.

The answer is 200 with `{"status": "ok"}`, or 503 with `{"status": "failed", "reason": …}`.
"""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from leveret.errors import PreconditionFailed
from leveret.management.api_route import ApiRoute
from leveret.management.rights import LOOKING, MANAGEMENT
from leveret.management.routes.node.identity import check_node, node_name
from leveret.management.routes.shared import BROKER, OPERATOR, Row, found_vhost, json_response

#: Alternative names of protocols, and the names of their listeners in RabbitMQ.
_PROTOCOLS: Final = {
    "amqp091": "amqp",
    "amqp0.9.1": "amqp",
    "amqp0-9-1": "amqp",
    "amqp0_9_1": "amqp",
    "amqps": "amqp/ssl",
    "http1": "http",
    "http1.1": "http",
    "http_api": "http",
    "management": "http",
    "management_ui": "http",
    "ui": "http",
}

#: The length in seconds of each time unit of a certificate check.
_UNITS: Final = {"days": 86_400, "weeks": 604_800, "months": 2_628_000, "years": 31_536_000}

#: The maximum number of digits of a number in a path.
_DIGITS_MAX: Final = 6


def _ok(**more: object) -> web.Response:
    return json_response({"status": "ok", **more})


def _failed(reason: str, **more: object) -> web.Response:
    body = {"status": "failed", "reason": reason, **more}
    return json_response(body, HTTPStatus.SERVICE_UNAVAILABLE)


def _number(request: web.Request, name: str, wrong: str) -> int:
    """Return a number in the path.  Raises: PreconditionFailed (400 in HTTP)."""
    text = request.match_info[name]
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS_MAX:
        raise PreconditionFailed(wrong)
    return int(text)


async def alarms(request: web.Request) -> web.Response:
    """Check that no memory or disk alarm blocks publishers."""
    broker = request.app[BROKER]
    rows: list[Row] = []
    if broker.memory_alarm or broker.forced_alarm:
        rows.append({"node": node_name(), "resource": "memory"})
    if broker.disk_alarm:
        rows.append({"node": node_name(), "resource": "disk"})
    if not rows:
        return _ok()
    where = "on the node" if request.path.endswith("/local-alarms") else "in the cluster"
    return _failed(f"There are alarms in effect {where}", alarms=rows)


async def virtual_hosts(_request: web.Request) -> web.Response:
    """Report that all vhosts run; the broker does not start if it cannot recover one."""
    return _ok()


async def port_listener(request: web.Request) -> web.Response:
    """Check that the broker listens on a port."""
    port = _number(request, "port", "Invalid port")
    ports = [one.port for one in request.app[OPERATOR].addresses()]
    if port in ports:
        return _ok(port=port)
    return _failed("No active listener", missing=port, ports=ports)


async def protocol_listener(request: web.Request) -> web.Response:
    """Check that the broker listens for one of the protocols, which are separated by commas."""
    asked = request.match_info["protocol"].lower().split(",")
    wanted = [_PROTOCOLS.get(name, name) for name in asked]
    protocols = [one.protocol for one in request.app[OPERATOR].addresses()]
    for protocol in wanted:
        if protocol in protocols:
            return _ok(protocol=protocol, protocols=protocols)
    missing = wanted[0] if len(wanted) == 1 else wanted
    return _failed("No active listener", missing=missing, protocols=protocols)


async def certificate_expiration(request: web.Request) -> web.Response:
    """Check that no TLS certificate of the broker expires within a time."""
    count = _number(request, "within", "Invalid expiration value.")
    seconds = _UNITS.get(request.match_info["unit"].lower())
    if seconds is None:
        raise PreconditionFailed(
            "Time unit not recognised. Supported units: days, weeks, months, years."
        )
    last = time.time() + count * seconds
    expired = [
        {
            "node": node_name(),
            "protocol": one.protocol,
            "interface": one.host,
            "port": one.port,
            "certfile": one.certificate,
            "certfile_expires_on": [time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(one.expires))],
        }
        for one in request.app[OPERATOR].addresses()
        if one.expires is not None and one.expires < last
    ]
    return _failed("Certificates expiring", expired=expired) if expired else _ok()


async def in_service(request: web.Request) -> web.Response:
    """Check that clients can connect."""
    if any(one.protocol.startswith("amqp") for one in request.app[OPERATOR].addresses()):
        return _ok()
    return _failed("the broker does not listen for AMQP")


async def below_connection_limit(request: web.Request) -> web.Response:
    """Check that the broker is below its connection limit."""
    counts = request.app[OPERATOR].counts()
    used, room = counts.get("sockets_used", 0), counts.get("sockets_total", 0)
    if used < room:
        return _ok(current=used, limit=room)
    return _failed("node connection limit is reached", current=used, limit=room)


async def node(request: web.Request) -> web.Response:
    """Return whether an alarm is in effect, with status 200 as in RabbitMQ before 4.0."""
    if "name" in request.match_info:
        check_node(request)
    found = await alarms(request)
    found.set_status(HTTPStatus.OK)
    return found


async def always(_request: web.Request) -> web.Response:
    """Report success, because a single node always has its metadata, leaders and cluster size."""
    return _ok()


async def never_critical(_request: web.Request) -> web.Response:
    """Report that the node is not critical, because no other nodes depend on it."""
    return _ok(reason="single node cluster")


async def aliveness(request: web.Request) -> web.Response:
    """Check that a vhost exists."""
    found_vhost(request)
    return _ok()


_LEADERS: Final = "quorum-queues-without-elected-leaders"


def _check(name: str, handler: Handler) -> ApiRoute:
    """Return the route of a health check."""
    failures = {"503": "The check failed; `reason` says why."}
    return ApiRoute("GET", f"/api/health/checks/{name}", handler, LOOKING, failures=failures)


ROUTES: Final = (
    _check("alarms", alarms),
    _check("local-alarms", alarms),
    _check("virtual-hosts", virtual_hosts),
    _check("port-listener/{port}", port_listener),
    _check("protocol-listener/{protocol}", protocol_listener),
    _check("certificate-expiration/{within}/{unit}", certificate_expiration),
    _check("is-in-service", in_service),
    _check("ready-to-serve-clients", in_service),
    _check("below-node-connection-limit", below_connection_limit),
    _check("node-is-quorum-critical", never_critical),
    _check("node-is-mirror-sync-critical", never_critical),
    _check("metadata-store/initialized", always),
    _check("metadata-store/initialized/with-data", always),
    _check("reached-target-cluster-size", always),
    _check(f"{_LEADERS}/all-vhosts", always),
    _check(f"{_LEADERS}/all-vhosts/pattern/{{pattern}}", always),
    _check(f"{_LEADERS}/vhost/{{vhost}}", always),
    _check(f"{_LEADERS}/vhost/{{vhost}}/pattern/{{pattern}}", always),
    ApiRoute("GET", "/api/aliveness-test/{vhost}", aliveness, MANAGEMENT),
    ApiRoute("GET", "/api/healthchecks/node", node, LOOKING),
    ApiRoute("GET", "/api/healthchecks/node/{name}", node, LOOKING),
)
