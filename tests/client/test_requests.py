"""The requests of a channel: both shells show one signature and one contract for each."""

from __future__ import annotations

import inspect

import pytest

from leveret.client import Channel, blocking
from leveret.client.shell import requests

#: Each request as a channel's method, and as its reader sees it.
SIGNATURES = {
    "queue_declare": (
        "(self, queue: 'str' = '', *, passive: 'bool' = False, durable: 'bool | None' = None, "
        "exclusive: 'bool' = False, auto_delete: 'bool' = False, "
        "arguments: 'Mapping[str, object] | None' = None) -> 'DeclareOk'"
    ),
    "queue_bind": (
        "(self, queue: 'str', exchange: 'str', binding_key: 'str' = '', "
        "arguments: 'Mapping[str, object] | None' = None) -> 'None'"
    ),
    "queue_unbind": (
        "(self, queue: 'str', exchange: 'str', binding_key: 'str' = '', "
        "arguments: 'Mapping[str, object] | None' = None) -> 'None'"
    ),
    "queue_purge": "(self, queue: 'str') -> 'int'",
    "queue_delete": (
        "(self, queue: 'str', *, if_unused: 'bool' = False, if_empty: 'bool' = False) -> 'int'"
    ),
    "exchange_declare": (
        "(self, exchange: 'str', exchange_type: 'str' = 'direct', *, passive: 'bool' = False, "
        "durable: 'bool' = True, auto_delete: 'bool' = False, internal: 'bool' = False, "
        "arguments: 'Mapping[str, object] | None' = None) -> 'None'"
    ),
    "exchange_delete": "(self, exchange: 'str', *, if_unused: 'bool' = False) -> 'None'",
    "exchange_bind": (
        "(self, destination: 'str', source: 'str', binding_key: 'str' = '', "
        "arguments: 'Mapping[str, object] | None' = None) -> 'None'"
    ),
    "exchange_unbind": (
        "(self, destination: 'str', source: 'str', binding_key: 'str' = '', "
        "arguments: 'Mapping[str, object] | None' = None) -> 'None'"
    ),
    "confirm_select": "(self) -> 'None'",
    "tx_select": "(self) -> 'None'",
    "tx_commit": "(self) -> 'None'",
    "tx_rollback": "(self) -> 'None'",
    "get": "(self, queue: 'str', *, no_ack: 'bool' = False) -> 'Message | None'",
    "qos": (
        "(self, prefetch_count: 'int' = 0, *, prefetch_size: 'int' = 0, "
        "global_: 'bool' = False) -> 'None'"
    ),
    "recover": "(self, *, requeue: 'bool' = True) -> 'None'",
}


@pytest.mark.parametrize("name", SIGNATURES)
def test_a_request_is_shown_as_it_is_called(name: str) -> None:
    calls, waits = getattr(Channel, name), getattr(blocking.Channel, name)
    assert str(inspect.signature(calls)) == str(inspect.signature(waits)) == SIGNATURES[name]
    assert calls.__name__ == waits.__name__ == name
    contract = getattr(requests, name).__doc__
    assert contract
    assert calls.__doc__ == waits.__doc__ == contract
    assert inspect.iscoroutinefunction(calls)
    assert not inspect.iscoroutinefunction(waits)
