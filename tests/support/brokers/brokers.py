"""The broker that protocol and interop tests talk to: our own process, or another by its URI.

`LEVERET_TEST_URI` names a running broker; `LEVERET_TEST_BROKER=rabbitmq` says that it is Debian's
RabbitMQ 3.10.8, where a few expectations are older than those that Leveret follows.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from support.brokers.broker_process import BrokerProcess
from support.wire import raw


@dataclass(frozen=True)
class Broker:
    """A running broker; `process` is None when it is not ours."""

    uri: str
    is_rabbitmq: bool = False
    process: BrokerProcess | None = None


#: Opens a socket to the broker and sends nothing.
Dial = Callable[[], raw.Connection]


class Client(Protocol):
    """Opens raw connections that are closed after the test."""

    def __call__(self, login: raw.Login | None = None, *, channel: bool = True) -> raw.Connection:
        """Return an open connection, by default with channel 1 open."""


def app_exists() -> bool:
    """Whether the installed package has a broker to start."""
    try:
        return importlib.util.find_spec("leveret.app") is not None
    except ModuleNotFoundError:
        return False


def need_own_broker() -> None:
    """Skip a test that starts broker processes of its own where there is nothing to start."""
    if os.environ.get("LEVERET_TEST_URI"):
        pytest.skip("needs a broker of its own; LEVERET_TEST_URI names another")
    if not app_exists():
        pytest.skip("leveret.app is not there yet")


@contextlib.contextmanager
def running_broker(data_dir: Path, settings: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """Give the broker to test, started on `data_dir` unless the environment names one."""
    if uri := os.environ.get("LEVERET_TEST_URI"):
        yield Broker(uri, os.environ.get("LEVERET_TEST_BROKER") == "rabbitmq")
        return
    need_own_broker()
    with BrokerProcess(data_dir, settings=settings) as process:
        yield Broker(process.uri, process=process)


def unique(prefix: str = "t") -> str:
    """Return a name that no other test has: there is one vhost for all."""
    return f"{prefix}-{secrets.token_hex(6)}"
