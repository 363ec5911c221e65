"""`GET /api/overview`: the totals of the broker, and its churn."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Final

from aiohttp import web

from leveret import __version__
from leveret.broker.broker import Broker
from leveret.broker.exchanges.exchange import DELAYED_TYPE
from leveret.broker.exchanges.types import EXCHANGE_TYPES
from leveret.broker.stats.stats import VhostTotals, queues_in_turn
from leveret.broker.stats.totals import QUEUE_COUNTS, QueueSums
from leveret.management.api_route import ApiRoute
from leveret.management.gate import only_of, seen_vhosts
from leveret.management.requests.slices import next_slice
from leveret.management.rights import LOOKING
from leveret.management.routes.lists import SLICE_ROWS
from leveret.management.routes.node.identity import (
    RUNTIME,
    RUNTIME_VERSION,
    cluster_name,
    node_name,
)
from leveret.management.routes.shared import (
    BROKER,
    OPERATOR,
    Row,
    columns_asked,
    row_response,
    seen,
    shared_response,
)
from leveret.management.sampling.rates import (
    asked_ages,
    broker_stats,
    lengths,
    message_stats,
    rates_known,
)
from leveret.management.sampling.sampler import CHURN, CLIENT_COUNTS, Sampler, churn_counts
from leveret.management.sampling.series import Samples
from leveret.wire.buffer import BUILD

#: The protocols of the listeners that are shown as web contexts.
_HTTP: Final = ("http", "https")


async def overview(request: web.Request) -> web.Response:
    """Return the product, totals, rates and listeners."""
    names = seen_vhosts(request)
    if names is not None:
        return row_response(request, await _partly(request, names))
    return await shared_response(request, partial(_wholly, request))


async def _wholly(request: web.Request) -> object:
    """Return the overview of the whole broker."""
    broker = request.app[BROKER]
    operator = request.app[OPERATOR]
    sampler = operator.sampler
    sums = await sampler.sums()
    totals = VhostTotals(broker)
    listeners = [_listener(one.protocol, one.host, one.port) for one in operator.addresses()]
    row: Row = {
        **_of_queues(request, sums, sampler.totals),
        "message_stats": _done(request, sums, sampler),
        "churn_rates": churn(broker, sampler),
        "object_totals": {
            "channels": totals.channel_count,
            "connections": totals.connection_count,
            "consumers": sums.consumers,
            "exchanges": totals.exchange_count,
            "queues": sums.queues,
        },
        "listeners": listeners,
        "contexts": [_context(one) for one in listeners if one["protocol"] in _HTTP],
    }
    return columns_asked(request, row)


async def _partly(request: web.Request, names: list[str]) -> Row:
    """Return the overview of some vhosts, with the user's own connections only."""
    broker = request.app[BROKER]
    sums = QueueSums()
    for name in names:
        rows = queues_in_turn(broker, name)
        while taken := list(islice(rows, SLICE_ROWS)):
            for _, queue in taken:
                sums.add(queue)
            await next_slice()
    user = only_of(request)
    mine = [link for link in broker.links if link.user == user]
    ages = asked_ages(request.query)
    counts = dict(zip(QUEUE_COUNTS, sums.counts(), strict=True))
    return {
        **_of_queues(request, sums, None),
        "message_stats": message_stats(counts, None, ages, 0),
        "object_totals": {
            "channels": sum(int(link.channel_count()) for link in mine),
            "connections": len(mine),
            "consumers": sums.consumers,
            "exchanges": sum(len(vhost.exchanges.by_name) for vhost in seen(request)),
            "queues": sums.queues,
        },
    }


def _of_queues(request: web.Request, sums: QueueSums, series: Samples | None) -> Row:
    """Return the product and the totals of queues."""
    ages = asked_ages(request.query)
    summed_ms = request.app[OPERATOR].sampler.summed_ms
    return {
        **_product(request.app[OPERATOR].rabbitmq_version),
        "cluster_name": cluster_name(request),
        "node": node_name(),
        "queue_totals": lengths(sums.ready, sums.unacked, series, ages, summed_ms),
        "rates_known": rates_known(series, summed_ms),
    }


def _done(request: web.Request, sums: QueueSums, sampler: Sampler) -> Row:
    """Return the message counters of the whole broker, including those of clients."""
    counts = dict(zip(QUEUE_COUNTS, sums.counts(), strict=True))
    counts.update(zip(CLIENT_COUNTS, sampler.client_counts(), strict=True))
    ages = asked_ages(request.query)
    return broker_stats(counts, sampler.totals, ages, sampler.summed_ms)


def _product(rabbitmq_version: str) -> Row:
    """Return the product and the features of its API."""
    return {
        "management_version": rabbitmq_version,
        "rabbitmq_version": rabbitmq_version,
        "product_name": "Leveret",
        "product_version": __version__,
        "build": BUILD,
        "erlang_version": RUNTIME_VERSION,
        "erlang_full_version": RUNTIME,
        "rates_mode": "basic",
        "sample_retention_policies": {
            "global": [600, 3600, 28800, 86400],
            "basic": [600],
            "detailed": [600],
        },
        "exchange_types": exchange_types(),
        "statistics_db_event_queue": 0,
        "disable_stats": False,
        "enable_queue_totals": False,
        "default_queue_type": "classic",
        "is_op_policy_updating_enabled": True,
        "cluster_tags": {},
        "node_tags": {},
    }


def exchange_types() -> list[Row]:
    """Return the exchange types as in RabbitMQ's API."""
    names = (*EXCHANGE_TYPES, DELAYED_TYPE)
    return [{"name": name, "description": "", "enabled": True} for name in names]


def churn(broker: Broker, sampler: Sampler) -> Row:
    """Return the counters of opened, closed, created and deleted objects, with their rates."""
    found: Row = {}
    for name, count in zip(CHURN, churn_counts(broker), strict=True):
        found[name] = count
        found[f"{name}_details"] = {"rate": sampler.totals.rate((name,), count, sampler.now_ms())}
    return found


def _context(listener: Row) -> Row:
    """Return an HTTP listener as a web context in RabbitMQ's API."""
    return {
        "description": "RabbitMQ Management",
        "ip": listener["ip_address"],
        "node": listener["node"],
        "path": "/",
        "port": str(listener["port"]),
        "ssl": listener["protocol"] == "https",
    }


def _listener(protocol: str, host: str, port: int) -> Row:
    """Return a listening address as in RabbitMQ's API."""
    return {
        "node": node_name(),
        "protocol": protocol,
        "ip_address": host,
        "port": port,
        "socket_opts": {},
    }


ROUTES: Final = (ApiRoute("GET", "/api/overview", overview, LOOKING, heavy=True),)
