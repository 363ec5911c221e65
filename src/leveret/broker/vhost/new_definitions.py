"""Creates exchanges that are not in their vhost yet, each with its journal record.

Types and arguments are checked here, before any state changes; `Exchanges` adds the exchange later.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from mypy_extensions import i64

from leveret.broker.attributes.arguments import Arguments, type_name
from leveret.broker.exchanges.exchange import Exchange
from leveret.broker.exchanges.numbers import check_exchange_numbers
from leveret.broker.exchanges.types import make_exchange
from leveret.broker.scheduler.accounts import EXCHANGE_BYTES, QUEUE_BYTES, table_bytes
from leveret.errors import PreconditionFailed
from leveret.names import Name
from leveret.store.records.definition import Definition

if TYPE_CHECKING:
    from leveret.broker.vhost.vhost import Vhost


def new_exchange(
    vhost: Vhost,
    name: Name,
    kind: str,
    durable: bool,
    auto_delete: bool,
    internal: bool,
    arguments: Arguments,
) -> tuple[Exchange, Definition]:
    """Return an exchange that is ready to be added, with its record; no memory is booked for it.

    Raises: PreconditionFailed (406) for a bad type or argument.
    """
    where = vhost.exchange_label(name)
    alternate = arguments.get("alternate-exchange")
    if alternate is not None and not isinstance(alternate, str):
        raise PreconditionFailed(
            f"invalid type '{type_name(alternate)}' for arg 'alternate-exchange' in {where}"
        )
    check_exchange_numbers(kind, arguments, where)
    exchange = make_exchange(name, kind, durable, auto_delete, internal, arguments)
    # A transient exchange has a record too, because listings and exports use it.
    return exchange, Definition("exchange", exchange.definition(vhost.name))


def exchange_bytes(exchange: Exchange) -> i64:
    """Return the memory of an exchange, without the bindings from it."""
    size: i64 = EXCHANGE_BYTES + sys.getsizeof(exchange.name) + table_bytes(exchange.arguments)
    if exchange.delays:
        # The store of delayed messages is a queue.
        size += QUEUE_BYTES
    return size + exchange.index_bytes()
