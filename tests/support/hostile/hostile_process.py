"""A real broker that gets hostile requests over its sockets, and is killed.

Like `hostile_node` in memory, but with the shell around the core: sockets, threads, files and
signals.  After a batch the broker is killed, started, stopped gracefully and started again,
`leveret store check` examines its directory, and its definitions are imported into an empty broker;
they must be unchanged each time.

Invariant: `faults` of the tally holds everything that went wrong, with its case.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from typer.testing import CliRunner

from leveret.cli import exits
from leveret.cli.root import app
from support.brokers.broker_process import BrokerProcess
from support.hostile import hostile_commands, hostile_methods, hostile_requests
from support.hostile.hostile_commands import is_one_line, run_command
from support.hostile.hostile_node import (
    Tally,
    Wire,
    difference,
    durable,
    is_failure,
    is_reasoned,
    rows,
)
from support.hostile.hostile_requests import Request
from support.hostile.hostile_values import spread
from support.wire import raw
from support.wire.raw_codec import method

#: A few large definitions cause a checkpoint, so that checkpoints occur during a batch.
SETTINGS: Final = {"journal_bytes_max": "64KiB", "journal_file_bytes": "64KiB"}

#: The user for both AMQP and HTTP, in the vhost of the cases.
LOGIN: Final = raw.Login("u", "u", "h")

#: The objects of the cases; importing them restores the state after a case.
_NONE: Final = {"max-connections": -1}
_PERMISSION: Final = {"configure": ".*", "write": ".*", "read": ".*"}
_PLAIN: Final = {
    "default_queue_type": "", "protected_from_deletion": False, "strict_keys": False,
}  # fmt: skip
BASE: Final[dict[str, Any]] = {
    "vhosts": [{"name": name, "metadata": _PLAIN, "limits": _NONE} for name in ("/", "h")],
    "users": [
        {"name": name, "password": name, "tags": ["administrator"], "limits": {"max-channels": -1}}
        for name in ("guest", "u")
    ],
    "permissions": [
        {"user": user, "vhost": vhost, **_PERMISSION}
        for user in ("guest", "u")
        for vhost in ("/", "h")
    ],
    "queues": [
        {"vhost": "h", "name": name, "arguments": arguments}
        for name, arguments in (
            ("q", {}), ("kept", {"x-retain-acked": "1D"}), ("s", {"x-queue-type": "stream"}),
            ("stage", {"x-staging-sink": "sink", "x-staging-batch": 1}),
        )
    ],
    "exchanges": [
        {"vhost": "h", "name": name, "type": kind, "arguments": arguments}
        for name, kind, arguments in (
            ("e", "x-delayed-message", {"x-delayed-type": "topic"}),
            ("hash", "x-consistent-hash", {}),
            ("history", "x-recent-history", {"x-recent-history-length": 5}),
        )
    ],
}  # fmt: skip

#: The durable state that is not in definitions.
_OTHERS: Final = {
    b"/api/sinks/h": ("sink", "destination", "batch", "last"),
    b"/api/streams/h/s/consumers": ("name", "offset"),
}

#: One case: a request (over TCP or not), a method's name and bytes, or a command.
Case = tuple[Request, bool] | tuple[str, bytes] | list[str]


class HostileProcess:
    """One broker process on one directory, for one batch of cases."""

    def __init__(self, directory: Path, tally: Tally) -> None:
        self.tally = tally
        self.directory = directory
        self.process = BrokerProcess(directory / "data", settings=SETTINGS)

    async def run(self, batch: Iterable[Case]) -> None:
        """Try each case, then check the resulting state."""
        with self.process:
            await self._connected()
            for case in batch:
                await self._try(case)
            await self._restarts()

    async def _connected(self) -> None:
        self.unix = Wire(path=self.process.data_dir / "management.sock")
        self.tcp = Wire(port=_http_port(self.process))
        await self._prepare(self.unix, BASE)

    async def _prepare(self, wire: Wire, definitions: object) -> None:
        body = json.dumps(definitions).encode()
        status, answer = await wire.ask("POST", b"/api/definitions", body)
        if status != 200:
            self.tally.fails(f"what the cases need is refused: {status} {answer[:500]!r}")

    async def _state(self, wire: Wire) -> tuple[bytes, list[list[object]]]:
        _, exported = await wire.ask("GET", b"/api/definitions", None)
        others = []
        for path, fields in _OTHERS.items():
            _, answer = await wire.ask("GET", path, None)
            others += [[row[field] for field in fields] for row in json.loads(answer)]
        return exported, sorted(others, key=repr)

    async def _try(self, case: Case) -> None:
        await self._prepare(self.unix, BASE)
        before = await self._state(self.unix)
        if isinstance(case, list):
            refused, shown = await self._ordered(case)
        elif isinstance(case[0], Request):
            refused, shown = await self._asked(case[0], bool(case[1]))
        else:
            assert isinstance(case[1], bytes)
            refused, shown = await asyncio.to_thread(self._sent, str(case[0]), case[1])
        if refused and await self._state(self.unix) != before:
            self.tally.differs(f"{shown}: {refused}, and something changed")

    async def _asked(self, request: Request, over_tcp: bool) -> tuple[str, str]:
        wire = self.tcp if over_tcp else self.unix
        try:
            status, answer = await wire.ask(request.method, request.path, request.body)
        except (OSError, EOFError, ValueError) as error:
            self.tally.fails(f"{request}: no answer: {error!r}")
            return "", str(request)
        is_taken = 200 <= status < 300
        self.tally.counted(" ".join(request.route), is_taken)
        if is_failure(request, status):
            self.tally.fails(f"{request}: {status} {answer[:300]!r}")
        if not is_taken and not is_reasoned(status, answer):
            self.tally.differs(f"{request}: {status} without a reason: {answer[:200]!r}")
        return "" if is_taken else str(status), str(request)

    def _sent(self, name: str, data: bytes) -> tuple[str, str]:
        """Send a method on a new connection; return the code of a close."""
        shown = f"{name} {data[:200]!r}"
        code = 0
        with raw.Connection(self.process.host, self.process.port) as connection:
            connection.handshake(LOGIN)
            connection.open_channel(1)
            # A broker that answers this has handled the case.
            connection.send(data, method(2, "channel.open"))
            try:
                while (got := connection.next_method()).name != "channel.open-ok":
                    if got.name in ("channel.close", "connection.close"):
                        code = int(got.code)
                        if got.name == "connection.close":
                            break
                        connection.send(method(1, "channel.close-ok"))
            except raw.Closed:
                # The case requested the close; a broker that died refuses the next connection.
                pass
        self.tally.counted(name, code == 0)
        if code == 541:
            self.tally.fails(f"{shown}: {code}")
        return str(code) if code else "", shown

    async def _ordered(self, arguments: list[str]) -> tuple[str, str]:
        shown = f"ctl {' '.join(ascii(one)[:200] for one in arguments)}"
        try:
            code, _, said = await asyncio.to_thread(run_command, self.process.data_dir, arguments)
        except Exception as bug:  # noqa: BLE001 (a traceback is what a user would see)
            code, said = 1, "\n"
            self.tally.fails(f"{shown}: {bug!r}")
        self.tally.counted(f"ctl {arguments[0]}", code == 0)
        if code not in (0, exits.USAGE) and not is_one_line(said):
            self.tally.differs(f"{shown}: {code}, and no single line: {said[:300]!r}")
        return str(code) if code else "", shown

    # -- durable state -----------------------------------------------------------------------------

    async def _restarts(self) -> None:
        """Kill and stop the broker, and compare each time; then move its definitions."""
        exported, others = await self._state(self.unix)
        told, whole = durable(exported), rows(json.loads(exported))
        for label, end in (("kill", self.process.kill), ("stop", self.process.terminate)):
            self._closed()
            end()
            self._checked(label)
            self.process.start()
            await self._reopened()
            again, more = await self._state(self.unix)
            if said := difference(told, durable(again)):
                self.tally.differs(f"{label}: {said}")
            if more != others:
                self.tally.differs(f"{label}: {others} became {more}")
            self.tally.restarts += 1
        self._closed()
        generations = [int(path.name) for path in self.process.data_dir.glob("state/*[0-9]")]
        self.tally.checkpoints += max(generations, default=0)
        with BrokerProcess(self.directory / "other") as other:
            wire = Wire(path=other.data_dir / "management.sock")
            await self._prepare(wire, json.loads(exported))
            found = rows(json.loads((await self._state(wire))[0]))
            wire.close()
        if said := difference(whole, found):
            self.tally.differs(f"import: {said}")

    async def _reopened(self) -> None:
        self.unix = Wire(path=self.process.data_dir / "management.sock")
        self.tcp = Wire(port=_http_port(self.process))

    def _closed(self) -> None:
        self.unix.close()
        self.tcp.close()

    def _checked(self, label: str) -> None:
        """Run `leveret store check` on the directory."""
        done = CliRunner().invoke(app, ["store", "check", str(self.process.data_dir)])
        if done.exit_code != 0:
            self.tally.differs(f"{label}: store check: {done.exit_code} {done.output[:500]}")


def _http_port(process: BrokerProcess) -> int:
    """The port on which a process serves HTTP."""
    line = process.expect_line("listening on http://")
    return int(line.rsplit(":", 1)[1])


def sample(random_: random.Random, count: int) -> list[Case]:
    """Cases of all kinds: `count` requests and methods each, fewer over TCP and as commands."""
    requests = hostile_requests.cases().values()
    users = hostile_requests.cases(users=True).values()
    methods = hostile_methods.cases().values()
    commands = [hostile_commands.cases()]
    chosen: list[Case] = [(one, False) for one in spread(random_, requests, count)]
    chosen += [(one, True) for one in spread(random_, users, count // 5)]
    chosen += [(name, make()) for name, make in spread(random_, methods, count)]
    chosen += [list(one) for one in spread(random_, commands, count // 20)]
    random_.shuffle(chosen)
    return chosen


def run_process(directory: Path, tally: Tally, batch: Iterable[Case]) -> None:
    """Try a batch of cases on a broker process."""
    asyncio.run(HostileProcess(directory, tally).run(batch))
