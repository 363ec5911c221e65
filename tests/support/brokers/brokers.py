"""The broker under protocol and interop tests: our own process, or another one given by its URI.

`LEVERET_TEST_URI` is the URI of a running broker.  `LEVERET_TEST_BROKER=rabbitmq` means that it is
Debian's RabbitMQ 3.10.8, for which a few expectations differ, because Leveret follows newer ones.
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
    """A running broker; `process` is None if it is not ours."""

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
    """Whether the installed package contains the broker."""
    try:
        return importlib.util.find_spec("leveret.app") is not None
    except ModuleNotFoundError:
        return False


def need_own_broker() -> None:
    """Skip a test that starts its own broker processes if there is no broker to start."""
    if os.environ.get("LEVERET_TEST_URI"):
        pytest.skip("needs a broker of its own; LEVERET_TEST_URI names another")
    if not app_exists():
        pytest.skip("leveret.app is not there yet")


@contextlib.contextmanager
def running_broker(data_dir: Path, settings: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """Yield the broker to test, started on `data_dir` unless the environment names one."""
    if uri := os.environ.get("LEVERET_TEST_URI"):
        yield Broker(uri, os.environ.get("LEVERET_TEST_BROKER") == "rabbitmq")
        return
    need_own_broker()
    with BrokerProcess(data_dir, settings=settings) as process:
        yield Broker(process.uri, process=process)


def unique(prefix: str = "t") -> str:
    """Return a unique name: all tests share one vhost."""
    return f"{prefix}-{secrets.token_hex(6)}"
