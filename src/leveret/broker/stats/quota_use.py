"""The use of quotas by each user and each vhost, with their limits, for operators."""

from __future__ import annotations

from leveret.broker.attributes.arguments import Arguments
from leveret.broker.broker import Broker
from leveret.broker.quotas import (
    MAX_BINDINGS,
    MAX_MESSAGE_BYTES,
    MAX_MESSAGES,
    MAX_QUEUES,
    Use,
)
from leveret.broker.users.users import DEFAULT_LIMITS, MAX_CONNECTIONS


def user_quotas(broker: Broker, name: str) -> list[Arguments]:
    """Return a row for each limit of a user, and for each use without a limit."""
    users = broker.users
    use = broker.core.quotas.users.get(users.owner(name).key)
    used = {} if use is None else _used(use)
    if use is not None:
        used[MAX_QUEUES] = int(use.queues)
    used[MAX_CONNECTIONS] = broker.connection_count(user=name)
    limits = {limit: users.limit(name, limit) for limit in DEFAULT_LIMITS}
    refused = 0 if use is None else int(use.refused)
    return _rows("user", name, limits, used, refused)


def vhost_quotas(broker: Broker, name: str) -> list[Arguments]:
    """Return such rows for an existing vhost."""
    vhost = broker.vhosts[name]
    used = _used(vhost.use)
    used[MAX_QUEUES] = len(vhost.queues.by_name)
    used[MAX_CONNECTIONS] = broker.connection_count(vhost=name)
    return _rows("vhost", name, vhost.limits.by_name, used, int(vhost.use.refused))


def _used(use: Use) -> dict[str, int]:
    use.count_messages()
    return {
        MAX_BINDINGS: int(use.bindings),
        MAX_MESSAGES: int(use.messages),
        MAX_MESSAGE_BYTES: int(use.bytes),
    }


def _rows(
    of: str, name: str, limits: dict[str, int], used: dict[str, int], refused: int
) -> list[Arguments]:
    rows: list[Arguments] = []
    for limit in (MAX_CONNECTIONS, MAX_QUEUES, MAX_BINDINGS, MAX_MESSAGES, MAX_MESSAGE_BYTES):
        most = limits.get(limit, -1)
        row: Arguments = {"of": of, "name": name, "limit": limit, "used": used.get(limit, 0)}
        row["max"] = most if most >= 0 else None
        if limit == MAX_MESSAGES:
            row["refused"] = refused
        if most >= 0 or row["used"]:
            rows.append(row)
    return rows
