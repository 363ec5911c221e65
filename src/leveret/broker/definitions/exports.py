"""Definitions: the configuration of a broker in the form of RabbitMQ's definitions files.

This module exports definitions, and `imports` imports them.  Definitions contain no messages.
Values are JSON values except in arguments, which may have any value of a field table.  The caller
that writes the file chooses a representation for those.

Exclusive queues, which end with their connection, and predeclared exchanges are not exported.
Passwords are exported as hashes only.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from leveret.broker.attributes.arguments import Arguments
from leveret.broker.broker import Broker
from leveret.broker.definitions.typed_arguments import TYPED, typed_arguments
from leveret.broker.parameters import policy_value
from leveret.broker.scheduler.costs import EXPORTED_ROW
from leveret.broker.stats.stats import vhosts_of
from leveret.errors import NotFound

if TYPE_CHECKING:
    from leveret.broker.exchanges.binding import Binding
    from leveret.broker.exchanges.exchange import Exchange
    from leveret.broker.queue.queue import Queue
    from leveret.broker.users.users import User
    from leveret.broker.vhost.vhost import Vhost


def vhost_head(broker: Broker, name: str) -> Arguments:
    """Return the fields of a vhost's definitions that precede its sections.

    Raises: NotFound (404).
    """
    vhost = broker.vhosts.get(name)
    if vhost is None:
        raise NotFound(f"no vhost '{name}'")
    return {
        "rabbitmq_definition_format": "single_virtual_host",
        "original_vhost_name": name,
        "explanation": f"Definitions of virtual host '{name}'",
        "description": vhost.metadata.description,
        "metadata": vhost.metadata.fields(),
        "limits": dict(vhost.limits.by_name),
    }


_OF_BROKER: Final = ("users", "vhosts", "permissions", "topic_permissions", "global_parameters")
_OF_VHOST: Final = ("parameters", "policies", "queues", "exchanges", "bindings")


def sections_of(vhost: str | None) -> tuple[str, ...]:
    """Return the names of the sections for a vhost, or for the whole broker if None."""
    return _OF_VHOST if vhost is not None else _OF_BROKER + _OF_VHOST


def definition_rows(broker: Broker, vhost: str | None, section: str) -> Iterator[Arguments]:
    """Yield the rows of a section of the whole broker, or of one vhost, without the vhost's name.

    The broker may change during the iteration.  Each row has the state at the time it is taken.
    Objects deleted before are not listed, and objects declared after the section began may not be.
    """
    scheduler = broker.core.scheduler
    if section in _OF_BROKER:
        for row in _broker_rows(broker, section):
            scheduler.spent += EXPORTED_ROW
            yield row
        return
    for of in vhosts_of(broker, vhost):
        for row in _vhost_rows(broker, of, section):
            scheduler.spent += EXPORTED_ROW
            if vhost is None:
                row["vhost"] = of.name
            yield row


def _broker_rows(broker: Broker, section: str) -> Iterator[Arguments]:
    """Yield the rows of a section without a vhost."""
    users = broker.users
    if section == "users":
        for user in list(users.by_name.values()):
            yield _user(user, users.limits.get(user.name, {}))
    elif section == "vhosts":
        for vhost in list(broker.vhosts.values()):
            if not vhost.deleted:
                yield vhost.metadata.record()
    elif section == "permissions":
        for (user_name, vhost_name), permission in list(users.permissions.items()):
            yield permission.definition(user_name, vhost_name)
    elif section == "topic_permissions":
        for (user_name, vhost_name), of_user in list(users.topic_permissions.items()):
            for exchange, topic_permission in list(of_user.items()):
                yield topic_permission.definition(user_name, vhost_name, exchange)
    else:
        for name, value in list(broker.parameters.global_values.items()):
            yield {"name": name, "value": value}


def _vhost_rows(broker: Broker, vhost: Vhost, section: str) -> Iterator[Arguments]:
    """Yield the rows of a vhost in a section."""
    if section == "parameters":
        for component, name, value in broker.parameters.of_vhost(vhost.name):
            yield {"component": component, "name": name, "value": value}
    elif section == "policies":
        for policy in list(vhost.policies.by_name.values()):
            yield {"name": policy.name, **policy_value(policy)}
    elif section == "queues":
        for queue in list(vhost.queues.by_name.values()):
            if not (queue.exclusive or queue.hidden or queue.deleted):
                yield _queue(queue)
    elif section == "exchanges":
        for exchange in list(vhost.exchanges.by_name.values()):
            if exchange.name and not exchange.name.startswith("amq.") and not exchange.deleted:
                yield _exchange(exchange)
    else:
        for exchange in list(vhost.exchanges.by_name.values()):
            for binding in list(exchange.bindings.values()):
                if not binding.has_ended() and not (binding.queue and binding.queue.exclusive):
                    yield _binding(binding)


def _queue(queue: Queue) -> Arguments:
    fields: Arguments = {
        "name": queue.name,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "type": queue.kind,
    }
    return _with_arguments(fields, queue.arguments)


def _exchange(exchange: Exchange) -> Arguments:
    fields: Arguments = {
        "name": exchange.name,
        "type": exchange.kind,
        "durable": exchange.durable,
        "auto_delete": exchange.auto_delete,
        "internal": exchange.internal,
    }
    return _with_arguments(fields, exchange.arguments)


def _binding(binding: Binding) -> Arguments:
    fields: Arguments = {
        "source": binding.source.name,
        "destination": binding.destination,
        "destination_type": "queue" if binding.queue is not None else "exchange",
        "routing_key": binding.binding_key,
    }
    return _with_arguments(fields, binding.arguments)


def _with_arguments(fields: Arguments, arguments: Arguments) -> Arguments:
    """Return an entry with its arguments; those that JSON would change are also in `TYPED`."""
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
