"""Debian's RabbitMQ as a neighbour to compare with: its own ports, its own directory, then gone.

It is not the system's service, which stays stopped: node name, ports, epmd, cookie, data and log
are all of this process and in a temporary directory.  Nothing listens beyond loopback.

Invariants: `start` returns when the broker said it is ready; `kill` is a SIGKILL and leaves the
data, on which `start` then starts again; `stop` leaves no process and no file.
Configuration is RabbitMQ's own default but for the addresses and what the caller gives.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Self

#: Debian's scripts themselves: /usr/sbin has wrappers that need root and the system's directories.
SCRIPT: Final = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")

START_SECONDS_MAX: Final = 90.0
STOP_SECONDS_MAX: Final = 10.0

CONTROL: Final = Path("/usr/lib/rabbitmq/bin/rabbitmqctl")

READY: Final = "completed with"


class RabbitMQError(Exception):
    """RabbitMQ is not installed or did not start."""


def installed() -> bool:
    """Whether Debian's rabbitmq-server and an Erlang are here."""
    return SCRIPT.exists() and shutil.which("epmd") is not None


def free_ports(count: int) -> list[int]:
    """Return loopback ports that were free just now."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


class RabbitMQ:
    """A RabbitMQ node in the foreground of its own session; a context manager."""

    def __init__(
        self, parent: Path | None = None, plugins: Sequence[str] = (), configuration: str = ""
    ) -> None:
        """`parent` is where its directory is made; without one, where temporary files go.

        `plugins` are enabled, and `configuration` is the text of its rabbitmq.conf.
        """
        self.parent = parent
        self.plugins = plugins
        self.configuration = configuration
        self.port = 0
        self.lines: list[str] = []
        self._ready = threading.Event()
        self._processes: list[subprocess.Popen[str]] = []
        self._directory: Path | None = None
        self._surroundings: dict[str, str] = {}

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def uri(self) -> str:
        """The URI of the default vhost for the user guest."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    @property
    def pid(self) -> int:
        """The process id of the running node's Erlang machine."""
        assert self._directory is not None
        return int((self._directory / "pid").read_text())

    @property
    def version(self) -> str:
        """The version of the installed package's server."""
        return SCRIPT.resolve().parent.parent.name.removeprefix("rabbitmq_server-")

    def _require(self) -> None:
        """Refuse to start a server that is not here.  Raises: RabbitMQError."""
        if not installed():
            raise RabbitMQError(
                "rabbitmq-server is not installed (apt-get install rabbitmq-server)"
            )

    def _command(self, directory: Path, command: list[str]) -> list[str]:
        """Return the command line that runs a command of the package for a node's directory."""
        del directory
        return command

    def _seen(self, directory: Path) -> Path:
        """Return the path under which the node sees its directory."""
        return directory

    def start(self) -> Self:
        """Start the node and wait until it serves.  Raises: RabbitMQError."""
        self._require()
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="bench-rabbitmq-", dir=self.parent))
        (self._directory / "enabled_plugins").write_text(f"[{','.join(self.plugins)}].\n")
        (self._directory / "rabbitmq.conf").write_text(self.configuration)
        # One that a kill left names a process that is gone, or by now another.
        (self._directory / "pid").unlink(missing_ok=True)
        self._ready.clear()
        self.lines.clear()
        self.port, distribution, epmd = free_ports(3)
        environment = self._environment(self._seen(self._directory), distribution, epmd)
        self._surroundings = environment
        self._spawn(["epmd", "-address", "127.0.0.1", "-port", str(epmd)], environment)
        server = self._spawn([str(SCRIPT)], environment, stdout=subprocess.PIPE)
        threading.Thread(target=self._drain, args=(server,), daemon=True).start()
        self._ready.wait(START_SECONDS_MAX)
        if not any(READY in line for line in self.lines):
            self.stop()
            raise RabbitMQError("RabbitMQ did not start:\n" + "".join(self.lines))
        return self

    def kill(self) -> None:
        """End all its processes by SIGKILL, the Erlang machine first; its data stay."""
        self._kill_machine()
        for process in reversed(self._processes):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._processes.clear()
        if self._directory is not None:
            (self._directory / "pid").unlink(missing_ok=True)

    def evaluate(self, expression: str) -> str:
        """Return what an Erlang expression gives on the running node.  Raises: RabbitMQError."""
        assert self._directory is not None
        command = [str(CONTROL), "--node", "bench@localhost", "eval", expression]
        ended = subprocess.run(
            self._command(self._directory, command),
            env=self._surroundings,
            capture_output=True,
            text=True,
            check=False,
        )
        if ended.returncode:
            raise RabbitMQError(f"{expression}: {ended.stdout}{ended.stderr}")
        return ended.stdout

    def sync_definitions(self) -> None:
        """Have the node write its definitions to disk, which it otherwise does some seconds later.

        A node that is killed before forgets even a durable queue whose declare it answered.
        Raises: RabbitMQError.
        """
        self.evaluate("mnesia:sync_log().")

    def stop(self) -> None:
        """End all its processes and remove its directory."""
        self.kill()
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _kill_machine(self) -> None:
        """End the Erlang machine first, so that the script that waits for it takes it away."""
        if self._directory is None:
            return
        with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
            os.kill(self.pid, signal.SIGKILL)
            self._processes[-1].wait(STOP_SECONDS_MAX)

    def _environment(self, directory: Path, distribution: int, epmd: int) -> dict[str, str]:
        return os.environ | {
            "HOME": str(directory),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(epmd),
            # The same after each start: its data are named by it.  Each node has its own epmd.
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_MNESIA_BASE": str(directory / "mnesia"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_PID_FILE": str(directory / "pid"),
            "RABBITMQ_CONFIG_FILE": str(directory / "rabbitmq"),
            "RABBITMQ_CONF_ENV_FILE": str(directory / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(directory / "enabled_plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "-kernel inet_dist_use_interface {127,0,0,1}",
        }

    def _spawn(
        self, command: list[str], environment: dict[str, str], stdout: int = subprocess.DEVNULL
    ) -> subprocess.Popen[str]:
        assert self._directory is not None
        process = subprocess.Popen(
            self._command(self._directory, command),
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._processes.append(process)
        return process

    def _drain(self, server: subprocess.Popen[str]) -> None:
        assert server.stdout is not None
        with server.stdout as output:
            for line in output:
                self.lines.append(line)
                if READY in line:
                    self._ready.set()
        self._ready.set()  # the end of the output: start looks at what it says


def serve(broker: RabbitMQ) -> int:
    """Run a node until interrupted and say where it is: to run tests against it by hand."""
    with broker:
        sys.stdout.write(f"LEVERET_TEST_URI={broker.uri} LEVERET_TEST_BROKER=rabbitmq\n")
        sys.stdout.flush()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()
    return 0


if __name__ == "__main__":
    raise SystemExit(serve(RabbitMQ()))
