"""Memory use by kind, for operators, without a walk over the queues."""

from __future__ import annotations

from mypy_extensions import i64

from leveret.broker.attributes.arguments import Arguments
from leveret.broker.broker import Broker


def memory_use(broker: Broker) -> list[Arguments]:
    """Return a row for each kind; rows with `of` are parts of another kind."""
    core = broker.core
    accounts = core.accounts
    retained, retries = core.memory.retention, core.memory.retries
    return [
        _row("all", "", broker.memory_bytes(), broker.memory_bytes_max),
        _row("messages", "all", broker.message_bytes(), -1),
        _row("retained", "messages", retained.bytes, retained.bytes_max),
        _row("retries", "messages", retries.bytes, retries.bytes_max),
        _row("unacked", "messages", core.memory.unacked.bytes, core.memory.unacked.bytes_max),
        _row("delayed", "messages", core.memory.delayed_bytes, -1),
        _row("streams", "messages", core.memory.unchunked_bytes, -1),
        _row("incomplete", "messages", core.memory.assembling_bytes, -1),
        _row("definitions", "all", accounts.definition_bytes, accounts.definition_bytes_max),
        _row("connections", "all", accounts.connection_bytes, accounts.connection_bytes_max),
        _row("sessions", "connections", broker.publish_sessions.held_bytes, -1),
        _row("marks", "all", accounts.mark_bytes, accounts.mark_bytes_max),
        _row("requests", "all", accounts.request_bytes, accounts.request_bytes_max),
    ]


def _row(kind: str, of: str, size: i64, most: i64) -> Arguments:
    return {"kind": kind, "of": of, "bytes": int(size), "max": int(most) if most >= 0 else None}
