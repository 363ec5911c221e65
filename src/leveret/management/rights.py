"""The right that each route needs of a broker's user on TCP: a tag, and access to the path's vhost.

`RIGHTS` has each route, by its method and path; a route that is missing here prevents the API from
starting.  The rights are RabbitMQ's.  Permissions on a queue or an exchange are checked by the
route's handler, as in AMQP (`gate.may_read` and its siblings), and so are the vhosts in a list
(`gate.seen_vhosts` and `gate.only_of`).

`HEAVY` has the routes whose work or answer grows with the number of objects or messages; only a few
such requests of a user are answered at once (`gate.Gate.heavy`).

The rights are stricter than RabbitMQ's in a few places, mostly because more depends on them here.
Only administrators may change global parameters (they hold the limits of users), set limits and
operator policies as parameters, see the limits of users, and close other users' connections (in
RabbitMQ the tag `monitoring` is enough for this).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leveret.broker.users.users import ADMINISTRATOR

MANAGEMENT_TAG: Final = "management"
POLICYMAKER_TAG: Final = "policymaker"
MONITORING_TAG: Final = "monitoring"

#: The tags that give access to more than streams.
MANAGING: Final = (MANAGEMENT_TAG, POLICYMAKER_TAG, MONITORING_TAG, ADMINISTRATOR)


@dataclass(frozen=True)
class Right:
    """The right that a route needs on TCP; the Unix socket needs none.

    `tags`: the user needs one of these, if there are any; `lacking` is the error without.  A user
    with a tag of `everywhere` needs no permission in the vhost of the path, sees all vhosts in
    lists, and may know which vhosts exist.
    """

    tags: tuple[str, ...]
    lacking: str
    everywhere: tuple[str, ...]


#: Any user, in accessible vhosts: streams and the objects that their use creates.
USER: Final = Right((), "", ())

#: A user of the API, in accessible vhosts; a change needs permissions on the object.
MANAGEMENT: Final = Right(MANAGING, "Not management user", (ADMINISTRATOR,))

#: Read access to the same; with the tag `monitoring`, in every vhost.
LOOKING: Final = Right(MANAGING, "Not management user", (ADMINISTRATOR, MONITORING_TAG))

#: Users with a view of the whole broker.
MONITORING: Final = Right(
    (MONITORING_TAG, ADMINISTRATOR), "Not monitor user", (ADMINISTRATOR, MONITORING_TAG)
)

#: Users who set policies and parameters in accessible vhosts.
POLICIES: Final = Right(
    (POLICYMAKER_TAG, ADMINISTRATOR), "User not authorised to access object", (ADMINISTRATOR,)
)

#: Administrators.
ADMINISTRATION: Final = Right((ADMINISTRATOR,), "Not administrator user", (ADMINISTRATOR,))

#: Not served on TCP at all.
OPERATOR: Final = Right((), "operator", ())

_NODE: Final = {
    "GET /api/overview": LOOKING,
    "GET /api/nodes": MONITORING,
    "GET /api/nodes/{name}": MONITORING,
    "GET /api/memory": MONITORING,
    "GET /api/nodes/{name}/memory": MONITORING,
    "GET /api/nodes/{name}/memory/relative": MONITORING,
    "GET /api/auth/attempts/{name}": MONITORING,
    "GET /api/auth/attempts/{name}/source": MONITORING,
    "POST /api/rebalance/queues": ADMINISTRATION,
    "GET /api/cluster-name": LOOKING,
    "PUT /api/cluster-name": ADMINISTRATION,
    "GET /api/config/effective": ADMINISTRATION,
    "GET /api/log/stream": MONITORING,
    "GET /metrics": MONITORING,
    "GET /metrics/per-object": MONITORING,
    "GET /metrics/detailed": MONITORING,
    "GET /metrics/memory-breakdown": MONITORING,
    "POST /api/backup": OPERATOR,
    "GET /api/backups": ADMINISTRATION,
    "POST /api/backups": ADMINISTRATION,
    "GET /api/backups/{backup}": ADMINISTRATION,
    "DELETE /api/backups/{backup}": ADMINISTRATION,
    "GET /api/backups/{backup}/files/{path}": ADMINISTRATION,
}

#: Users see only their own of these, unless they see everything; non-administrators close only
#: their own.
_CLIENTS: Final = {
    "GET /api/connections": LOOKING,
    "GET /api/connections/{connection}": LOOKING,
    "DELETE /api/connections/{connection}": MANAGEMENT,
    "GET /api/connections/{connection}/channels": LOOKING,
    "GET /api/connections/username/{user}": LOOKING,
    "DELETE /api/connections/username/{user}": MANAGEMENT,
    "GET /api/vhosts/{vhost}/connections": LOOKING,
    "GET /api/vhosts/{vhost}/channels": LOOKING,
    "GET /api/channels": LOOKING,
    "GET /api/channels/{channel}": LOOKING,
    "GET /api/consumers": LOOKING,
    "GET /api/consumers/{vhost}": LOOKING,
}

_QUEUES: Final = {
    "PUT /api/queues/{vhost}/{name}": MANAGEMENT,
    "GET /api/queues/detailed": LOOKING,
    "GET /api/queues": LOOKING,
    "GET /api/queues/{vhost}": LOOKING,
    "GET /api/queues/{vhost}/{name}": LOOKING,
    "DELETE /api/queues/{vhost}/{name}": MANAGEMENT,
    "DELETE /api/queues/{vhost}/{name}/contents": MANAGEMENT,
    "GET /api/queues/{vhost}/{name}/bindings": LOOKING,
    "POST /api/queues/{vhost}/{name}/actions": MANAGEMENT,
    "POST /api/queues/{vhost}/{name}/get": MANAGEMENT,
    "POST /api/queues/{vhost}/{name}/move": MANAGEMENT,
    "POST /api/queues/{vhost}/{name}/rewind": MANAGEMENT,
    "POST /api/queues/{vhost}/{name}/browse": MANAGEMENT,
    "GET /api/publishers/{vhost}/{queue}": USER,
    "DELETE /api/publishers/{vhost}/{queue}/{publisher}": USER,
    "PUT /api/publishers/{vhost}/{queue}/{publisher}/owner/{user}": USER,
    "GET /api/sinks/{vhost}": USER,
    "DELETE /api/sinks/{vhost}/{sink}": USER,
    "PUT /api/sinks/{vhost}/{sink}/owner/{user}": USER,
}

_EXCHANGES: Final = {
    "GET /api/exchanges": LOOKING,
    "GET /api/exchanges/{vhost}": LOOKING,
    "GET /api/exchanges/{vhost}/{name}": LOOKING,
    "PUT /api/exchanges/{vhost}/{name}": MANAGEMENT,
    "DELETE /api/exchanges/{vhost}/{name}": MANAGEMENT,
    "GET /api/exchanges/{vhost}/{name}/bindings/{end}": LOOKING,
    "POST /api/exchanges/{vhost}/{name}/publish": MANAGEMENT,
    "POST /api/exchanges/{vhost}/{name}/route": LOOKING,
    "GET /api/exchanges/{vhost}/{name}/delayed": MANAGEMENT,
    "DELETE /api/exchanges/{vhost}/{name}/delayed": MANAGEMENT,
    "DELETE /api/exchanges/{vhost}/{name}/delayed/{id}": MANAGEMENT,
    "GET /api/bindings": LOOKING,
    "GET /api/bindings/{vhost}": LOOKING,
    "GET /api/bindings/{vhost}/e/{source}/{kind}/{destination}": LOOKING,
    "POST /api/bindings/{vhost}/e/{source}/{kind}/{destination}": MANAGEMENT,
    "GET /api/bindings/{vhost}/e/{source}/{kind}/{destination}/{props}": LOOKING,
    "DELETE /api/bindings/{vhost}/e/{source}/{kind}/{destination}/{props}": MANAGEMENT,
}

_STREAMS: Final = {
    "GET /api/streams/{vhost}": USER,
    "GET /api/streams/{vhost}/{name}": USER,
    "GET /api/streams/{vhost}/{name}/offset": USER,
    "GET /api/streams/{vhost}/{name}/chunks": USER,
    "GET /api/streams/{vhost}/{name}/consumers": USER,
    "GET /api/streams/{vhost}/{name}/consumers/{consumer}": USER,
    "PUT /api/streams/{vhost}/{name}/consumers/{consumer}": USER,
    "DELETE /api/streams/{vhost}/{name}/consumers/{consumer}": USER,
    "PUT /api/streams/{vhost}/{name}/consumers/{consumer}/owner/{user}": USER,
    "GET /api/super-streams/{vhost}": USER,
    "GET /api/super-streams/{vhost}/{name}": USER,
    "PUT /api/super-streams/{vhost}/{name}": USER,
    "DELETE /api/super-streams/{vhost}/{name}": USER,
}

_VHOSTS: Final = {
    "GET /api/vhosts": LOOKING,
    "GET /api/vhosts/{vhost}": LOOKING,
    "PUT /api/vhosts/{vhost}": ADMINISTRATION,
    "DELETE /api/vhosts/{vhost}": ADMINISTRATION,
    "POST /api/vhosts/{vhost}/start/{name}": ADMINISTRATION,
    "POST /api/vhosts/{vhost}/deletion/protection": ADMINISTRATION,
    "DELETE /api/vhosts/{vhost}/deletion/protection": ADMINISTRATION,
    "GET /api/vhost-limits": LOOKING,
    "GET /api/vhost-limits/{vhost}": LOOKING,
    "PUT /api/vhost-limits/{vhost}": ADMINISTRATION,
    "DELETE /api/vhost-limits/{vhost}": ADMINISTRATION,
    "PUT /api/vhost-limits/{vhost}/{name}": ADMINISTRATION,
    "DELETE /api/vhost-limits/{vhost}/{name}": ADMINISTRATION,
}

_USERS: Final = {
    "GET /api/whoami": LOOKING,
    "POST /api/login": LOOKING,
    "POST /api/logout": LOOKING,
    "GET /api/auth": LOOKING,
    "GET /api/auth/hash_password/{password}": ADMINISTRATION,
    "POST /api/users/bulk-delete": ADMINISTRATION,
    "GET /api/users/without-permissions": ADMINISTRATION,
    "GET /api/quotas": MONITORING,
    "GET /api/users": ADMINISTRATION,
    "GET /api/users/{user}": ADMINISTRATION,
    "PUT /api/users/{user}": ADMINISTRATION,
    "DELETE /api/users/{user}": ADMINISTRATION,
    "GET /api/user-limits": ADMINISTRATION,
    "GET /api/user-limits/{user}": ADMINISTRATION,
    "PUT /api/user-limits/{user}": ADMINISTRATION,
    "DELETE /api/user-limits/{user}": ADMINISTRATION,
    "PUT /api/user-limits/{user}/{name}": ADMINISTRATION,
    "DELETE /api/user-limits/{user}/{name}": ADMINISTRATION,
    "GET /api/permissions": ADMINISTRATION,
    "GET /api/permissions/{vhost}/{user}": ADMINISTRATION,
    "PUT /api/permissions/{vhost}/{user}": ADMINISTRATION,
    "DELETE /api/permissions/{vhost}/{user}": ADMINISTRATION,
    "GET /api/vhosts/{vhost}/permissions": ADMINISTRATION,
    "GET /api/users/{user}/permissions": ADMINISTRATION,
    "GET /api/topic-permissions": ADMINISTRATION,
    "GET /api/topic-permissions/{vhost}/{user}": ADMINISTRATION,
    "PUT /api/topic-permissions/{vhost}/{user}": ADMINISTRATION,
    "DELETE /api/topic-permissions/{vhost}/{user}": ADMINISTRATION,
    "DELETE /api/topic-permissions/{vhost}/{user}/{exchange}": ADMINISTRATION,
    "GET /api/vhosts/{vhost}/topic-permissions": ADMINISTRATION,
    "GET /api/users/{user}/topic-permissions": ADMINISTRATION,
}

_SETTINGS: Final = {
    "GET /api/policies": POLICIES,
    "GET /api/policies/{vhost}": POLICIES,
    "GET /api/policies/{vhost}/{name}": POLICIES,
    "PUT /api/policies/{vhost}/{name}": POLICIES,
    "DELETE /api/policies/{vhost}/{name}": POLICIES,
    "GET /api/operator-policies": ADMINISTRATION,
    "GET /api/operator-policies/{vhost}": ADMINISTRATION,
    "GET /api/operator-policies/{vhost}/{name}": ADMINISTRATION,
    "PUT /api/operator-policies/{vhost}/{name}": ADMINISTRATION,
    "DELETE /api/operator-policies/{vhost}/{name}": ADMINISTRATION,
    "GET /api/parameters": POLICIES,
    "GET /api/parameters/{component}": POLICIES,
    "GET /api/parameters/{component}/{vhost}": POLICIES,
    "GET /api/parameters/{component}/{vhost}/{name}": POLICIES,
    "PUT /api/parameters/{component}/{vhost}/{name}": POLICIES,
    "DELETE /api/parameters/{component}/{vhost}/{name}": POLICIES,
    "GET /api/global-parameters": POLICIES,
    "GET /api/global-parameters/{name}": POLICIES,
    "PUT /api/global-parameters/{name}": ADMINISTRATION,
    "DELETE /api/global-parameters/{name}": ADMINISTRATION,
    "GET /api/all-configuration": ADMINISTRATION,
    "POST /api/all-configuration": ADMINISTRATION,
    "GET /api/definitions": ADMINISTRATION,
    "GET /api/definitions/{vhost}": ADMINISTRATION,
    "POST /api/definitions": ADMINISTRATION,
    "POST /api/definitions/{vhost}": ADMINISTRATION,
}

_LEADERS: Final = "GET /api/health/checks/quorum-queues-without-elected-leaders"

_FACTS: Final = {
    "GET /api/openapi.json": LOOKING,
    "GET /api/version": LOOKING,
    "GET /api/extensions": LOOKING,
    "GET /api/feature-flags": LOOKING,
    "PUT /api/feature-flags/{name}/enable": ADMINISTRATION,
    "GET /api/deprecated-features": LOOKING,
    "GET /api/deprecated-features/used": LOOKING,
    "GET /api/health/checks/alarms": LOOKING,
    "GET /api/health/checks/local-alarms": LOOKING,
    "GET /api/health/checks/virtual-hosts": LOOKING,
    "GET /api/health/checks/is-in-service": LOOKING,
    "GET /api/health/checks/ready-to-serve-clients": LOOKING,
    "GET /api/health/checks/below-node-connection-limit": LOOKING,
    "GET /api/health/checks/port-listener/{port}": LOOKING,
    "GET /api/health/checks/protocol-listener/{protocol}": LOOKING,
    "GET /api/health/checks/certificate-expiration/{within}/{unit}": LOOKING,
    "GET /api/aliveness-test/{vhost}": MANAGEMENT,
    "GET /api/health/checks/node-is-quorum-critical": LOOKING,
    "GET /api/health/checks/node-is-mirror-sync-critical": LOOKING,
    "GET /api/health/checks/metadata-store/initialized": LOOKING,
    "GET /api/health/checks/metadata-store/initialized/with-data": LOOKING,
    "GET /api/health/checks/reached-target-cluster-size": LOOKING,
    f"{_LEADERS}/all-vhosts": LOOKING,
    f"{_LEADERS}/all-vhosts/pattern/{{pattern}}": LOOKING,
    f"{_LEADERS}/vhost/{{vhost}}": LOOKING,
    f"{_LEADERS}/vhost/{{vhost}}/pattern/{{pattern}}": LOOKING,
    "GET /api/healthchecks/node": LOOKING,
    "GET /api/healthchecks/node/{name}": LOOKING,
}

#: The right that each route needs.
RIGHTS: Final = {
    **_NODE, **_CLIENTS, **_QUEUES, **_EXCHANGES, **_STREAMS, **_VHOSTS, **_USERS, **_SETTINGS,
    **_FACTS,
}  # fmt: skip

#: The routes whose work or answer grows with the number of objects or messages.  Routes that wait
#: for something (chunks of a stream, files of a backup, lines of the log) and long operations of
#: the core (deleting a vhost) are left out, because they have limits of their own.
HEAVY: Final = frozenset({
    "GET /api/overview",
    "GET /metrics/per-object",
    "GET /metrics/detailed",
    "GET /api/connections",
    "GET /api/connections/{connection}/channels",
    "GET /api/connections/username/{user}",
    "GET /api/vhosts/{vhost}/connections",
    "GET /api/vhosts/{vhost}/channels",
    "GET /api/channels",
    "GET /api/consumers",
    "GET /api/consumers/{vhost}",
    "GET /api/queues/detailed",
    "GET /api/queues",
    "GET /api/queues/{vhost}",
    "GET /api/queues/{vhost}/{name}/bindings",
    "POST /api/queues/{vhost}/{name}/get",
    "POST /api/queues/{vhost}/{name}/move",
    "POST /api/queues/{vhost}/{name}/browse",
    "GET /api/publishers/{vhost}/{queue}",
    "GET /api/sinks/{vhost}",
    "DELETE /api/sinks/{vhost}/{sink}",
    "PUT /api/sinks/{vhost}/{sink}/owner/{user}",
    "GET /api/exchanges",
    "GET /api/exchanges/{vhost}",
    "GET /api/exchanges/{vhost}/{name}/bindings/{end}",
    "POST /api/exchanges/{vhost}/{name}/route",
    "GET /api/exchanges/{vhost}/{name}/delayed",
    "GET /api/bindings",
    "GET /api/bindings/{vhost}",
    "GET /api/bindings/{vhost}/e/{source}/{kind}/{destination}",
    "GET /api/bindings/{vhost}/e/{source}/{kind}/{destination}/{props}",
    "DELETE /api/bindings/{vhost}/e/{source}/{kind}/{destination}/{props}",
    "GET /api/streams/{vhost}",
    "GET /api/streams/{vhost}/{name}/consumers",
    "GET /api/super-streams/{vhost}",
    "PUT /api/super-streams/{vhost}/{name}",
    "DELETE /api/super-streams/{vhost}/{name}",
    "GET /api/vhosts",
    "GET /api/vhost-limits",
    "GET /api/vhost-limits/{vhost}",
    "GET /api/quotas",
    "GET /api/users",
    "GET /api/users/without-permissions",
    "GET /api/user-limits",
    "GET /api/user-limits/{user}",
    "GET /api/permissions",
    "GET /api/vhosts/{vhost}/permissions",
    "GET /api/users/{user}/permissions",
    "GET /api/topic-permissions",
    "GET /api/vhosts/{vhost}/topic-permissions",
    "GET /api/users/{user}/topic-permissions",
    "GET /api/policies",
    "GET /api/policies/{vhost}",
    "GET /api/operator-policies",
    "GET /api/operator-policies/{vhost}",
    "GET /api/parameters",
    "GET /api/parameters/{component}",
    "GET /api/parameters/{component}/{vhost}",
    "GET /api/global-parameters",
    "GET /api/all-configuration",
    "POST /api/all-configuration",
    "GET /api/definitions",
    "GET /api/definitions/{vhost}",
    "POST /api/definitions",
    "POST /api/definitions/{vhost}",
})  # fmt: skip


def right_of(method: str, path: str) -> Right:
    """Return the right that a route needs; `path` is as the route declares it.

    Raises: KeyError for a route without a declared right.
    """
    return RIGHTS[_named(method, path)]


def is_heavy(method: str, path: str) -> bool:
    """Return whether the work of a route grows with the number of objects or messages."""
    return _named(method, path) in HEAVY


def _named(method: str, path: str) -> str:
    return f"{'GET' if method == 'HEAD' else method} {path}"
