"""`GET /api/nodes`: this broker as the only node, with its alarms, I/O times, memory and damage."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aiohttp import web

from leveret import machine
from leveret.broker.broker import Broker
from leveret.management.api_route import ApiRoute
from leveret.management.rights import ADMINISTRATION, MONITORING
from leveret.management.routes.lists import rows_response
from leveret.management.routes.node.identity import (
    RUNTIME,
    RUNTIME_VERSION,
    check_node,
    node_name,
)
from leveret.management.routes.node.overview import churn, exchange_types
from leveret.management.routes.shared import BROKER, OPERATOR, Row, row_response, shared_response
from leveret.management.sampling.node import NODE_COUNTS, node_counts
from leveret.management.sampling.rates import Ages, asked_ages, node_stats

#: The options of a request that may be answered with a recent answer to the same request.
_SAMPLES_ASKED: Final = {"node_stats_age", "node_stats_incr"}

#: The parts of RabbitMQ's memory breakdown that this broker does not have.
_OTHER_BUCKETS: Final = (
    "connection_channels",
    "connection_other",
    "queue_slave_procs",
    "quorum_queue_procs",
    "quorum_queue_dlx_procs",
    "stream_queue_procs",
    "stream_queue_replica_reader_procs",
    "stream_queue_coordinator_procs",
    "plugins",
    "metrics",
    "mgmt_db",
    "mnesia",
    "quorum_ets",
    "other_ets",
    "binary",
    "msg_index",
    "code",
    "atom",
    "other_system",
    "allocated_unused",
    "reserved_unallocated",
)


def _node(request: web.Request) -> Row:
    """Return the fields of the node by RabbitMQ's names, with sizes in bytes and times in ms."""
    broker = request.app[BROKER]
    operator = request.app[OPERATOR]
    core = broker.core
    io, reader = core.io, core.reader
    counts = operator.counts()
    damage = core.damage
    return {
        "name": node_name(),
        "type": "disc",
        "running": True,
        "rabbitmq_version": operator.rabbitmq_version,
        "erlang_version": RUNTIME_VERSION,
        "erlang_full_version": RUNTIME,
        "being_drained": False,
        "partitions": [],
        "os_pid": str(os.getpid()),
        "uptime": int((time.monotonic() - operator.started) * 1000),
        "run_queue": 0,
        "processors": machine.processors().amount,
        "proc_total": machine.threads().amount,
        "rates_mode": "basic",
        "enabled_plugins": ["rabbitmq_management"],
        "auth_mechanisms": [
            {"name": name, "description": "", "enabled": True} for name in ("PLAIN", "AMQPLAIN")
        ],
        "exchange_types": exchange_types(),
        "applications": [
            {"name": "rabbit", "description": "RabbitMQ", "version": operator.rabbitmq_version}
        ],
        "contexts": [],
        "config_files": [],
        "log_files": [],
        "cluster_links": [],
        **_memory_alarm(broker),
        "disk_free_limit": int(broker.disk_free_bytes_min),
        "disk_free_alarm": broker.disk_alarm,
        "io_read_avg_time": round(int(reader.read_ns) / max(1, int(reader.reads)) / 1e6, 4),
        "io_write_avg_time": round(io.write_ms, 4),
        "io_sync_avg_time": round(io.sync_ms, 4),
        "records_written": int(io.records),
        "records_per_sync": round(io.records_per_sync, 2),
        "events_dropped": 0 if core.events is None else int(core.events.dropped),
        "letters_dropped_copies": int(core.letters_dropped.copies),
        "letters_dropped_memory": int(core.letters_dropped.memory),
        **churn(broker, operator.sampler),
        **counts,
        **_with_rates(request, counts, asked_ages(request.query)),
        "store_damages": int(damage.places),
        "store_damages_known": int(damage.known),
        "store_records_lost": int(damage.records_lost),
        "store_torn_ends": int(damage.torn),
        "store_damaged_places": list(damage.named),
    }


def _memory_alarm(broker: Broker) -> Row:
    """Return the accounted memory, the limit and the state of the memory alarm."""
    accounts = broker.core.accounts
    return {
        "mem_messages": int(broker.message_bytes()),
        "mem_definitions": int(accounts.definition_bytes),
        "mem_connections": int(accounts.connection_bytes),
        "mem_limit": int(broker.memory_bytes_max),
        "mem_alarm": broker.memory_alarm,
        "mem_calculation_strategy": "rss",
    }


def _with_rates(request: web.Request, counts: Mapping[str, int], ages: Ages) -> Row:
    """Return the counts of the node's resource use and I/O, each with its rate and samples."""
    sampler = request.app[OPERATOR].sampler
    sampler.ask()
    numbers = node_counts(request.app[BROKER], counts)
    named = dict(zip(NODE_COUNTS, numbers, strict=True))
    return node_stats(named, sampler.totals, ages, sampler.now_ms())


def _memory(request: web.Request) -> dict[str, int]:
    """Return the accounted memory by RabbitMQ's names, in bytes, and the remainder."""
    broker = request.app[BROKER]
    accounts = broker.core.accounts
    rss = _resident_bytes()
    found = dict.fromkeys(_OTHER_BUCKETS, 0)
    found["queue_procs"] = int(broker.message_bytes())
    found["connection_readers"] = int(accounts.connection_bytes)
    found["connection_writers"] = 0
    found["metadata_store"] = int(accounts.definition_bytes)
    found["other_proc"] = max(0, rss - sum(found.values()))
    return found


def _resident_bytes() -> int:
    """Return the resident memory of the process, or its peak if the system provides only that."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return pages * resource.getpagesize()


async def nodes(request: web.Request) -> web.StreamResponse:
    """Return the only node."""
    if not request.query.keys() <= _SAMPLES_ASKED:
        return await rows_response(request, [_node(request)])

    async def alone() -> object:
        return [_node(request)]

    return await shared_response(request, alone)


async def node(request: web.Request) -> web.Response:
    """Return the node by its name."""
    check_node(request)
    found = _node(request)
    if request.query.get("memory") == "true":
        found["memory"] = _with_total(_memory(request))
    return row_response(request, found)


async def memory(request: web.Request) -> web.Response:
    """Return the node's memory breakdown, in bytes."""
    check_node(request)
    return row_response(request, {"memory": _with_total(_memory(request))})


async def relative_memory(request: web.Request) -> web.Response:
    """Return the node's memory breakdown, in percent of the total."""
    check_node(request)
    found = _memory(request)
    whole = max(1, sum(found.values()))
    shares: Row = {name: size * 100 // whole for name, size in found.items()}
    return row_response(request, {"memory": {**shares, "total": 100}})


async def login_attempts(request: web.Request) -> web.StreamResponse:
    """Return the accepted and refused logins since the start, by protocol."""
    check_node(request)
    counts = request.app[OPERATOR].counts()
    rows: list[Row] = []
    for name, protocol in (("http", "http"), ("amqp", "amqp091")):
        accepted = counts.get(f"{name}_logins_accepted", 0)
        refused = counts.get(f"{name}_logins_refused", 0)
        rows.append(
            {
                "protocol": protocol,
                "auth_attempts": accepted + refused,
                "auth_attempts_failed": refused,
                "auth_attempts_succeeded": accepted,
            }
        )
    return await rows_response(request, rows)


async def login_sources(request: web.Request) -> web.StreamResponse:
    """Return an empty list of logins by address and user, as RabbitMQ does by default."""
    check_node(request)
    return await rows_response(request, [])


async def nothing_to_move(_request: web.Request) -> web.Response:
    """Do nothing, because the only node leads all queues."""
    return web.Response(status=204)


def _with_total(found: Mapping[str, int]) -> Row:
    rss = _resident_bytes()
    used = sum(found.values())
    total = {"erlang": used, "rss": rss, "allocated": max(rss, used)}
    return {**found, "strategy": "rss", "total": total}


ROUTES: Final = (
    ApiRoute("GET", "/api/nodes", nodes, MONITORING, rows=True),
    ApiRoute("GET", "/api/nodes/{name}", node, MONITORING),
    ApiRoute("GET", "/api/nodes/{name}/memory", memory, MONITORING),
    ApiRoute("GET", "/api/nodes/{name}/memory/relative", relative_memory, MONITORING),
    ApiRoute("GET", "/api/auth/attempts/{name}", login_attempts, MONITORING, rows=True),
    ApiRoute("GET", "/api/auth/attempts/{name}/source", login_sources, MONITORING, rows=True),
    ApiRoute("POST", "/api/rebalance/queues", nothing_to_move, ADMINISTRATION),
)
