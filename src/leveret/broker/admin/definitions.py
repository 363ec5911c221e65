"""Definitions: all that a broker was told to be, in the form of RabbitMQ's definitions files.

Here they are taken out of a broker; `definitions_import` puts them into one.  They hold no
messages.  The values are those of JSON but for arguments, which may hold any value of a field
table; whoever writes them chooses their form.

Not among them: exclusive queues, which end with their connection, and what every vhost has.
Passwords are in them as hashes only.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

from leveret.broker.admin.definitions_values import TYPED, typed_arguments
from leveret.broker.node.broker import Broker
from leveret.broker.node.parameters import policy_value
from leveret.broker.values.arguments import Arguments
from leveret.errors import NotFound

if TYPE_CHECKING:
    from leveret.broker.node.users import User
    from leveret.broker.topology.binding import Binding
    from leveret.broker.vhost.vhost import Vhost

Rows = list[Arguments]


def export_definitions(broker: Broker) -> Arguments:
    """Return the definitions of the whole broker."""
    vhosts = list(broker.vhosts.values())
    users = broker.users
    permissions: Rows = []
    for (user, vhost_name), permission in users.permissions.items():
        permissions.append(permission.definition(user, vhost_name))
    topic_permissions: Rows = []
    for (user, vhost_name), of_user in users.topic_permissions.items():
        for exchange, topic_permission in of_user.items():
            topic_permissions.append(topic_permission.definition(user, vhost_name, exchange))
    global_parameters: Rows = [
        {"name": name, "value": value} for name, value in broker.parameters.global_values.items()
    ]
    definitions: Arguments = {
        "users": [_user(user, users.limits.get(user.name, {})) for user in users.by_name.values()],
        "vhosts": [vhost.metadata.record() for vhost in vhosts],
        "permissions": permissions,
        "topic_permissions": topic_permissions,
        "global_parameters": global_parameters,
    }
    sections: list[tuple[str, Rows]] = [(name, []) for name in _OF_VHOST]
    for vhost in vhosts:
        for place, rows in enumerate(_vhost_sections(broker, vhost)):
            for row in rows:
                row["vhost"] = vhost.name
            sections[place][1].extend(rows)
    for name, rows in sections:
        definitions[name] = rows
    return definitions


def export_vhost(broker: Broker, name: str) -> Arguments:
    """Return the definitions of one vhost, which name no vhost: they fit into any.

    Raises: NotFound (404).
    """
    vhost = broker.vhosts.get(name)
    if vhost is None:
        raise NotFound(f"no vhost '{name}'")
    definitions: Arguments = {
        "rabbitmq_definition_format": "single_virtual_host",
        "original_vhost_name": name,
        "metadata": vhost.metadata.fields(),
    }
    for place, rows in enumerate(_vhost_sections(broker, vhost)):
        definitions[_OF_VHOST[place]] = rows
    return definitions


_OF_VHOST = ("parameters", "policies", "queues", "exchanges", "bindings")


def _vhost_sections(broker: Broker, vhost: Vhost) -> list[Rows]:
    """Return the sections of a vhost in the order of `_OF_VHOST`."""
    parameters: Rows = [
        {"component": component, "name": name, "value": value}
        for component, name, value in broker.parameters.of_vhost(vhost.name)
    ]
    policies: Rows = [
        {"name": policy.name, **policy_value(policy)} for policy in vhost.policies.by_name.values()
    ]
    queues: Rows = [
        _with_arguments(
            {
                "name": queue.name,
                "durable": queue.durable,
                "auto_delete": queue.auto_delete,
                "type": queue.kind,
            },
            queue.arguments,
        )
        for queue in vhost.queues.by_name.values()
        if not queue.exclusive and not queue.hidden
    ]
    exchanges: Rows = []
    bindings: Rows = []
    for exchange in vhost.exchanges.by_name.values():
        if exchange.name and not exchange.name.startswith("amq."):
            fields: Arguments = {
                "name": exchange.name,
                "type": exchange.kind,
                "durable": exchange.durable,
                "auto_delete": exchange.auto_delete,
                "internal": exchange.internal,
            }
            exchanges.append(_with_arguments(fields, exchange.arguments))
        for binding in exchange.bindings.values():
            if binding.queue is None or not binding.queue.exclusive:
                bindings.append(_binding(binding))
    return [parameters, policies, queues, exchanges, bindings]


def _binding(binding: Binding) -> Arguments:
    fields: Arguments = {
        "source": binding.source.name,
        "destination": binding.destination,
        "destination_type": "queue" if binding.queue is not None else "exchange",
        "routing_key": binding.binding_key,
    }
    return _with_arguments(fields, binding.arguments)


def _with_arguments(fields: Arguments, arguments: Arguments) -> Arguments:
    """Return an entry with its arguments, and those again that JSON would change."""
    fields["arguments"] = arguments
    if typed := typed_arguments(arguments):
        fields[TYPED] = typed
    return fields


def _user(user: User, limits: dict[str, int]) -> Arguments:
    return {
        "name": user.name,
        "password_hash": base64.b64encode(user.password_hash).decode(),
        "hashing_algorithm": user.algorithm,
        "tags": list(user.tags),
        "limits": dict(limits),
    }
