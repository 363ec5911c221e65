"""Celery Flower, unpatched: its page of the broker, in the process that `celery flower` is.

It asks the HTTP API for the queues of a vhost and shows those of its app.  For the vhost `/` it
asks for `/api/queues//`, which RabbitMQ answers by 404 too: the vhost has a name here.
"""

from __future__ import annotations

import html
import http.client
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import IO, Self

import pytest

from interop.celery_app import CONFIGURATION, READY
from interop.worker_process import TESTS
from leveret.client.blocking import connect
from support.brokers.broker_process import BrokerProcess
from support.http.http_streams import HttpUser, http_port

#: For what hangs: a page takes a second.
SECONDS_MAX = 120.0
#: It gives the broker two seconds for an answer, which a busy machine may need.
TRIES_MAX = 30

LISTENING = re.compile(r"Visit me at http://127\.0\.0\.1:(\d+)")
ROW = re.compile(r'<tr id="([^"]*)">(.*?)</tr>', re.DOTALL)
CELL = re.compile(r"<td[^>]*>(.*?)</td>", re.DOTALL)


class Flower:
    """One `celery flower` for the queues of an app; a context manager."""

    def __init__(self, broker_url: str, api: str, queue: str) -> None:
        self.configuration = {"broker_url": broker_url, "task_default_queue": queue}
        self.options = [f"--broker-api={api}", "--address=127.0.0.1", "--port=0"]
        self.port = 0
        self.lines: list[str] = []

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "celery", "-A", "interop.celery_app", "flower", *self.options],
            env=os.environ
            | {CONFIGURATION: json.dumps(self.configuration), READY: "ready"}
            | {"PYTHONPATH": str(TESTS)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        heard = threading.Event()
        self._reader = threading.Thread(target=self._read, args=(self._process.stderr, heard))
        self._reader.start()
        if not heard.wait(SECONDS_MAX) or not self.port:
            self.__exit__()
            pytest.fail("".join(self.lines))
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()
        sys.stdout.write("".join(self.lines))

    def _read(self, pipe: IO[str], heard: threading.Event) -> None:
        """Keep what it says, until it ends, and note its port."""
        with pipe:
            for line in pipe:
                self.lines.append(line)
                if found := LISTENING.search(line):
                    self.port = int(found[1])
                    heard.set()
        heard.set()

    def rows(self) -> dict[str, list[str]]:
        """Return the rows of its page of the broker by the names of the queues."""
        asking = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS_MAX)
        asking.request("GET", "/broker")
        answer = asking.getresponse()
        page = answer.read().decode()
        asking.close()
        assert answer.status == 200, page
        return {
            name: [html.unescape(cell) for cell in CELL.findall(row)]
            for name, row in ROW.findall(page)
        }


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with a vhost for tasks."""
    settings = {"login_failure_delay_ms": "100"}
    with BrokerProcess(tmp_path_factory.mktemp("data"), settings=settings) as process:
        with HttpUser(http_port(process)) as user:
            assert user.ask("PUT", "/api/vhosts/tasks")[0] == 201
        yield process


@pytest.mark.parametrize("version", [importlib.metadata.version("flower")])
def test_the_page_of_the_broker_shows_the_queues(
    broker: BrokerProcess, record_property: Callable[[str, str], None], version: str
) -> None:
    record_property("flower", version)
    uri = f"amqp://guest:guest@127.0.0.1:{broker.port}/tasks"
    api = f"http://guest:guest@127.0.0.1:{http_port(broker)}/api/"
    with connect(uri) as connection, Flower(uri, api, "todo") as flower:
        channel = connection.channel()
        for name in ("todo", "of-others"):
            channel.queue_declare(name)
        channel.confirm_select()
        for _ in range(3):
            channel.publish(b"task", "", "todo")
        assert channel.get("todo") is not None
        # Total, unacked, ready, consumers.
        found = next(filter(None, (flower.rows() for _ in range(TRIES_MAX))), {})
        assert list(found) == ["todo"], flower.lines
        assert found["todo"][:5] == ["todo", "3", "1", "2", "0"]
        # Whether a time or a dash: the queue is in use, so that RabbitMQ too gives none.
        assert len(found["todo"]) == 6


def test_a_wrong_password_shows_no_queue(broker: BrokerProcess) -> None:
    uri = f"amqp://guest:guest@127.0.0.1:{broker.port}/tasks"
    api = f"http://guest:wrong@127.0.0.1:{http_port(broker)}/api/"
    with connect(uri) as connection, Flower(uri, api, "todo") as flower:
        connection.channel().queue_declare("todo")
        for _ in range(TRIES_MAX):
            assert flower.rows() == {}
            if "HTTP 401" in "".join(flower.lines):
                break
        assert "HTTP 401" in "".join(flower.lines), flower.lines
