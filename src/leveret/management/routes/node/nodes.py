"""`GET /api/nodes`: this broker as a node, its alarms, what its journal costs, what is damaged."""

from __future__ import annotations

import os
import socket
from typing import Final

from aiohttp import web

from leveret.management.routes.shared import BROKER, OPERATOR, Row, json_response


def _name() -> str:
    """Return the node's name, as RabbitMQ makes it: product and host."""
    return f"leveret@{socket.gethostname()}"


def _node(request: web.Request) -> Row:
    """Return the node by RabbitMQ's names: sizes in bytes, averages in ms."""
    broker = request.app[BROKER]
    turn = broker.turn
    io = turn.io
    damage = turn.damage
    return {
        "name": _name(),
        "type": "disc",
        "running": True,
        "os_pid": str(os.getpid()),
        "mem_used": int(broker.memory_bytes()),
        "mem_limit": int(broker.memory_bytes_max),
        "mem_alarm": broker.memory_alarm,
        "disk_free": int(broker.disk_free_bytes),
        "disk_free_limit": int(broker.disk_free_bytes_min),
        "disk_free_alarm": broker.disk_alarm,
        "io_write_count": int(io.writes),
        "io_write_bytes": int(io.bytes_written),
        "io_write_avg_time": round(io.write_ms, 4),
        "io_sync_count": int(io.syncs),
        "io_sync_avg_time": round(io.sync_ms, 4),
        "records_written": int(io.records),
        "records_per_sync": round(io.records_per_sync, 2),
        "events_dropped": 0 if turn.events is None else int(turn.events.dropped),
        "letters_dropped_copies": int(turn.letters_dropped.copies),
        "letters_dropped_memory": int(turn.letters_dropped.memory),
        **request.app[OPERATOR].counts(),
        "store_damages": int(damage.places),
        "store_damages_known": int(damage.known),
        "store_records_lost": int(damage.records_lost),
        "store_torn_ends": int(damage.torn),
        "store_damaged_places": list(damage.named),
    }


async def nodes(request: web.Request) -> web.Response:
    """Return the one node that there is."""
    return json_response([_node(request)])


async def node(request: web.Request) -> web.Response:
    """Return the node by its name.  Raises: HTTPNotFound."""
    if request.match_info["name"] != _name():
        raise web.HTTPNotFound
    return json_response(_node(request))


ROUTES: Final = (web.get("/api/nodes", nodes), web.get("/api/nodes/{name}", node))
