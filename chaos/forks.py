"""Booting a broker on thousands of directories, each in a child that is forked with all imported.

The child is a whole broker (`leveret.app.node`: recovery, core, journal, sync thread, a real socket
and a real directory); what it saves is the start of an interpreter, which takes most of a cold
start.  Who wants that too starts `leveret serve` by `BrokerProcess`.

The child adds one thing to what it recovered: the user `reader`, in memory only, so that a damaged
record of a user keeps nobody from looking at the queues.

Invariants: `booted` ends the child however it is left; a child never returns into its parent's
code; the parent runs no threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import select
import signal
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from leveret.app.node import RunningBroker
from leveret.broker.broker import Broker
from leveret.broker.users.permissions import Permission
from leveret.broker.users.users import User, hash_password
from leveret.config import Settings
from leveret.management.fields import plain
from leveret.store.disk import StorageFailure
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.node.exporting import export_definitions

READER: Final = "reader"

#: A boot that takes longer has failed; one takes 10 ms.
BOOT_SECONDS_MAX: Final = 20.0

#: What a file of definitions says of who wrote it.
HEAD: Final = ("rabbit_version", "rabbitmq_version", "product_name", "product_version")

#: The file that a child's log goes to, beside its directory.
LOG: Final = "log"


@dataclass(frozen=True)
class Boot:
    """A broker that runs, or did not start: then `port` is 0.  `said` is what it logged so far."""

    port: int
    definitions: dict[str, Any]
    said: Callable[[], str]


def prepare() -> None:
    """Make this process ready to be forked: what it holds is not looked at by collections."""
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def booted(directory: Path, settings: dict[str, Any]) -> Iterator[Boot]:
    """Give a broker on `directory` that a child of this process runs; it is killed afterwards."""
    log = directory.with_name(f"{directory.name}.{LOG}")
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        _be_broker(directory, settings, writing, log)
    os.close(writing)
    try:
        told = _told(reading)
        said = partial(log.read_text, errors="replace")
        yield Boot(told.get("port", 0), told.get("definitions", {}), said)
    finally:
        os.close(reading)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


@contextlib.contextmanager
def started(directory: Path, settings: dict[str, str]) -> Iterator[Boot]:
    """Give a broker that `leveret serve` runs; the reader is let in over its HTTP API."""
    with BrokerProcess(directory, settings=settings) as broker:
        api = Api(directory / "management.sock")
        status, definitions = api.ask("GET", "/api/definitions")
        assert status == 200, definitions
        assert isinstance(definitions, dict)
        api.change("PUT", f"/api/users/{READER}", {"password": READER, "tags": "administrator"})
        for vhost in definitions["vhosts"]:
            path = f"/api/permissions/{urllib.parse.quote(vhost['name'], safe='')}/{READER}"
            api.change("PUT", path, {"configure": ".*", "write": ".*", "read": ".*"})
        api.close()
        kept = {name: value for name, value in definitions.items() if name not in HEAD}
        yield Boot(broker.port, kept, lambda: broker.output)


def _told(reading: int) -> dict[str, Any]:
    """Return what a child tells when it is ready; nothing when it ended instead."""
    pieces: list[bytes] = []
    while select.select([reading], [], [], BOOT_SECONDS_MAX)[0]:
        piece = os.read(reading, 1 << 20)
        pieces.append(piece)
        if piece.endswith(b"\n"):
            told: dict[str, Any] = json.loads(b"".join(pieces))
            return told
        if not piece:
            break
    return {}


def _be_broker(directory: Path, settings: dict[str, Any], ready: int, log: Path) -> None:
    """Run a broker in this child until it is killed, and never return."""
    code = 1
    try:
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        given = Settings(data_dir=directory, port=0, uvloop=False, **settings)
        code = asyncio.run(_serve(given, ready))
    except BaseException as error:  # noqa: BLE001 (whatever it was, it must not reach the parent)
        os.write(2, f"the child fails: {error!r}\n".encode())
    finally:
        os._exit(code)


async def _serve(settings: Settings, ready: int) -> int:
    node = RunningBroker(settings)
    try:
        await node.start()
    except (StorageFailure, OSError) as error:
        node.log.critical("the broker cannot start", reason=str(error))
        return 1
    definitions = plain(export_definitions(node.broker))
    let_in(node.broker)
    told = json.dumps({"port": node.port, "definitions": definitions}).encode() + b"\n"
    while told:
        told = told[os.write(ready, told) :]
    await node.wait()
    return 1


def let_in(broker: Broker) -> None:
    """Let the reader into every vhost; his password is his name."""
    users = broker.users
    users.restore_user(User(READER, hash_password(b"salt", READER.encode()), ["administrator"]))
    for vhost in broker.vhosts:
        users.permissions[READER, vhost] = Permission(".*", ".*", ".*")
