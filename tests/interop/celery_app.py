"""The tasks that Celery's workers run in `test_celery`; `app` is what `celery -A` finds.

A worker is told by the environment its configuration and the queue where it says that it is ready;
the tests make apps of the same tasks.
"""
# mypy: allow-untyped-calls

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from celery import Celery, Task
from celery.signals import worker_ready
from kombu.connection import Connection

#: The variable that holds a worker's configuration, as JSON.
CONFIGURATION: Final = "INTEROP_CELERY"

#: The variable that names the queue where a worker says that it consumes tasks and remote control.
READY: Final = "INTEROP_CELERY_READY"


def add(x: int, y: int) -> int:
    """Return the sum of two numbers."""
    return x + y


def total(numbers: list[int]) -> int:
    """Return the sum of many numbers: the body of a chord."""
    return sum(numbers)


def fail(text: str) -> None:
    """Fail.  Raises: ValueError."""
    raise ValueError(text)


def flaky(self: Task, failures: int) -> int:
    """Fail so many times, half a second apart, and return how often it was tried again."""
    if self.request.retries < failures:
        raise self.retry(countdown=0.5, max_retries=failures)
    return int(self.request.retries)


def note(self: Task, reply: str, text: str) -> None:
    """Put `text` into the queue `reply`."""
    tell(self.app, reply, text)


def hold(self: Task, reply: str) -> str:
    """Say that it has begun and never end; end at once where it is delivered again."""
    if self.request.delivery_info["redelivered"]:
        return "redelivered"
    tell(self.app, reply, "begun")
    threading.Event().wait()
    return "not reached"


def wait(self: Task, reply: str, gate: str) -> None:
    """Say that it has begun, and end when somebody writes to the named pipe `gate`."""
    tell(self.app, reply, "begun")
    Path(gate).read_bytes()


def journey(self: Task) -> dict[str, Any]:
    """Return what the message says of its way: its exchange, its key and its dead letters."""
    deaths = vars(self.request).get("x-death", [])
    return {
        "exchange": self.request.delivery_info["exchange"],
        "routing_key": self.request.delivery_info["routing_key"],
        "deaths": [[death["queue"], death["reason"], death["count"]] for death in deaths],
    }


def tell(app: Celery, reply: str, text: str) -> None:
    """Put `text` into the queue `reply`, over a connection of its own."""
    with Connection(app.conf.broker_url) as connection:
        queue = connection.SimpleQueue(reply)
        queue.put(text)
        queue.close()


def make_app(configuration: dict[str, Any], *, current: bool = False) -> Celery:
    """Return an app with all tasks."""
    made = Celery("interop", set_as_current=current)
    made.conf.update(configuration)
    plain: list[Callable[..., Any]] = [add, total, fail]
    bound: list[Callable[..., Any]] = [flaky, note, hold, wait, journey]
    for function in plain:
        made.task(function, name=function.__name__)
    for function in bound:
        made.task(function, name=function.__name__, bind=True)
    made.task(wait, name="wait_then_ack", bind=True, acks_late=True)
    return made


if CONFIGURATION in os.environ:
    app = make_app(json.loads(os.environ[CONFIGURATION]), current=True)

    def say_ready(**_: object) -> None:
        """Tell the test: Celery sends this signal when the worker's last consumer is started."""
        tell(app, os.environ[READY], "ready")

    worker_ready.connect(say_ready, weak=False)
