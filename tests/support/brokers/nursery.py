"""Forked `python -m leveret` processes with their imports done, for tests that start very many.

Starting the interpreter and importing take most of the processor time of a broker's start, and are
the same each time.  So each pytest process has one process that imports the broker's modules and
waits.  For each start it forks a *watcher*, and the watcher forks the process itself, which gets
its arguments, environment and files and continues like `python -m leveret`.  The watcher waits for
its end, to report the exit code.

From then on it is an ordinary process: it listens, writes, and can be killed and waited for.  At
its end it joins threads, runs exit handlers and flushes buffers, and nothing else.  Tests of the
start itself, tests that need another interpreter or a wrapper, and benchmarks do not use it.

Invariants: nothing is forked while the forking process runs an event loop or a thread; a process
with an environment that differs in more than Leveret's settings is not started here.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Final

#: Variables that the interpreter or a library reads at its start; all others may differ.
_EARLY: Final = ("PYTHON", "LANG", "LC_", "LD_", "MALLOC_", "GLIBC_", "OPENSSL_", "TZ")

#: Modules of commands that import much, or modules that other commands do not need.
_HEAVY: Final = ("leveret.cli.demo", "leveret.cli.pipeline", "leveret.cli.shell")

_LENGTH_BYTES: Final = 8

#: Standard input, output and error, and the socket for the pid and the exit code.
_FILES: Final = 4


class Grown:
    """A process started by the nursery, with the interface of `subprocess.Popen`."""

    def __init__(self, control: socket.socket, stdout: IO[str] | None) -> None:
        self.stdout = stdout
        self._control = control
        self._told = b""
        self.returncode: int | None = None
        line = self._line(None)
        if line is None or not line:
            raise ChildProcessError("the nursery started no process")
        self.pid: Final = int(line)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal, or None while it runs."""
        return self._wait(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code at the end.  Raises: subprocess.TimeoutExpired."""
        code = self._wait(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(["leveret"], timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            # It may have ended without its watcher having reported it yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM, unless it has ended."""
        self.send_signal(signal.SIGTERM)

    def _wait(self, timeout: float | None) -> int | None:
        if self.returncode is None:
            line = self._line(timeout)
            if line is not None:
                self.returncode = int(line or -signal.SIGKILL)
                self._control.close()
        return self.returncode

    def _line(self, timeout: float | None) -> bytes | None:
        """Return the watcher's next line, empty at its end; None on a timeout."""
        while b"\n" not in self._told:
            if not select.select([self._control], [], [], timeout)[0]:
                return None
            part = self._control.recv(100)
            if not part:
                return b""
            self._told += part
        line, _, self._told = self._told.partition(b"\n")
        return line


class Nursery:
    """The forking process, which is started on first use."""

    def __init__(self) -> None:
        #: True in tests; False in benchmarks, which measure starts.
        self.open = False
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._early = early(os.environ)

    def takes(self, python: str, environment: Mapping[str, str]) -> bool:
        """Return whether a process may be started here."""
        return self.open and python == sys.executable and early(environment) == self._early

    def start(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        stdin: int,
        stdout: int,
        stderr: int,
    ) -> Grown:
        """Start `python -m leveret` with those arguments and files."""
        if self._process is not None and self._process.poll() is not None:
            # It could not fork, or was killed: restart it for the following tests.
            assert self._socket is not None
            self._socket.close()
            self._socket = None
        if self._socket is None:
            self._begin()
        assert self._socket is not None
        request = {"arguments": list(arguments), "env": dict(environment), "cwd": str(Path.cwd())}
        data = json.dumps(request).encode()
        ours, theirs = socket.socketpair()
        with theirs:
            files = [stdin, stdout, stderr, theirs.fileno()]
            socket.send_fds(self._socket, [len(data).to_bytes(_LENGTH_BYTES)], files)
            self._socket.sendall(data)
        return Grown(ours, None)

    def popen(self, arguments: Sequence[str], environment: Mapping[str, str]) -> Grown:
        """Start a process with output and errors on one pipe, `stdout`, as text."""
        read, write = os.pipe()
        nothing = os.open(os.devnull, os.O_RDONLY)
        try:
            grown = self.start(arguments, environment, nothing, write, write)
        finally:
            os.close(nothing)
            os.close(write)
        grown.stdout = os.fdopen(read, errors="replace")
        return grown

    def _begin(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )


def early(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment that are read before imports are done."""
    return {name: value for name, value in environment.items() if name.startswith(_EARLY)}


NURSERY: Final = Nursery()


# -- in the process that forks ---------------------------------------------------------------------


def _receive(requests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return a request with its files; None at the end of pytest."""
    head, files, _, _ = socket.recv_fds(requests, _LENGTH_BYTES, _FILES)
    if not head:
        return None
    while len(head) < _LENGTH_BYTES:
        head += requests.recv(_LENGTH_BYTES - len(head))
    left = int.from_bytes(head)
    parts = []
    while left:
        part = requests.recv(left)
        parts.append(part)
        left -= len(part)
    return json.loads(b"".join(parts)), files


def _watch(control: socket.socket) -> bool:
    """Fork the process itself and report its exit code; return True in that process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        return True
    for number in range(3):
        os.close(number)
    control.sendall(b"%d\n" % pid)
    status = os.waitpid(pid, 0)[1]
    control.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _next() -> dict[str, Any] | None:
    """Fork for each request; return it in the forked process, and None at the end."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    # Watchers end on their own, and nobody waits for them.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while (received := _receive(requests)) is not None:
        request, files = received
        if os.fork() == 0:
            requests.close()
            for number, file in enumerate(files[:3]):
                os.dup2(file, number)
                os.close(file)
            control = socket.socket(fileno=files[3])
            _watch(control)
            control.close()
            return request
        for file in files:
            os.close(file)
    return None


def _open_streams() -> None:
    """Reopen the standard streams on their current files, as in a new interpreter."""
    for number, (name, mode, lines) in enumerate(
        (("stdin", "r", -1), ("stdout", "w", -1), ("stderr", "w", 1))
    ):
        old = getattr(sys, name)
        stream = open(  # noqa: SIM115 (it is as open as the process)
            number, mode, lines, old.encoding, old.errors, closefd=False
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _import() -> None:
    """Import the modules of the broker, as a broker does, and those of most commands."""
    import leveret.cli
    from leveret.cli.serve import import_broker

    import_broker()
    for module in pkgutil.walk_packages(leveret.cli.__path__, "leveret.cli."):
        if not module.name.startswith(_HEAVY):
            importlib.import_module(module.name)


def _end(code: int) -> None:
    """End the process like the interpreter, but without its finalization.

    That would touch, and so copy, all memory from before the fork, which takes two thirds of the
    time of a command.
    """
    threading._shutdown()  # type: ignore[attr-defined]  # noqa: SLF001
    atexit._run_exitfuncs()  # noqa: SLF001
    # Python reports a closed output itself.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _main() -> None:
    _import()
    # Existing objects are permanent: no later collection examines them, and so copies their pages.
    gc.collect()
    gc.freeze()
    request = _next()
    if request is not None:
        os.environ.clear()
        os.environ.update(request["env"])
        os.chdir(request["cwd"])
        _open_streams()
        sys.argv = ["", *request["arguments"]]
        try:
            runpy.run_module("leveret", run_name="__main__", alter_sys=True)
        except SystemExit as ended:
            if ended.code is None or isinstance(ended.code, int):
                _end(ended.code or 0)
            raise
        _end(0)


if __name__ == "__main__":
    _main()
