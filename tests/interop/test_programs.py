"""Programs in other languages, each by its language's usual client as Debian or npm has it.

Each program in `programs/` connects, declares a durable queue, publishes ten messages and waits for
their confirms, consumes and acks them, is cancelled because its queue is deleted, declares it
again, holds a message when the broker restarts, connects again, gets the message again, deletes
the queue and closes.  It says so step by step.  Two run side by side, one of them over TLS.

C's runs with all tests.  The others need large toolchains: they have the mark `toolchains`, and
`make interop` installs what they need and runs them.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import pytest
from rabbitmq import free_ports

from leveret.client.blocking import connect
from support.brokers.broker_process import BrokerProcess
from support.brokers.secure import Pki

PROGRAMS: Final = Path(__file__).parent / "programs"
JARS: Final = "/usr/share/java"
GO_PATH: Final = "/usr/share/gocode"
#: Where `make interop` puts what npm installs.
NODE_MODULES: Final = Path(__file__).parents[2] / ".interop" / "node_modules"
#: For what hangs: a program takes seconds.
SECONDS_MAX: Final = 300
BEFORE_THE_CANCEL: Final = ("connected", "confirmed", "acked")
BEFORE_THE_RESTART: Final = ("cancelled", "holding")
AFTER_THE_RESTART: Final = ("recovered", "closed")


def built(*command: str, **environment: str) -> None:
    """Run a compiler, which must end well."""
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=SECONDS_MAX
    )
    assert done.returncode == 0, done.stdout + done.stderr


def of_c(folder: Path) -> list[str]:
    """Build C's program; return its command."""
    program = str(folder / "program")
    built("cc", "-Wall", "-o", program, str(PROGRAMS / "program.c"), "-lrabbitmq")
    return [program]


def of_go(folder: Path, package: str) -> list[str]:
    """Build Go's program with one of the packages that have the same names; return its command."""
    source, program = folder / "program.go", folder / "program"
    text = (PROGRAMS / "program.go").read_text()
    source.write_text(text.replace('"github.com/streadway/amqp"', f'amqp "{package}"'))
    cache = {"GOCACHE": str(folder / "cache"), "GOPATH": GO_PATH, "GO111MODULE": "off"}
    built("go", "build", "-o", str(program), str(source), **cache)
    return [str(program)]


def of_java(folder: Path) -> list[str]:
    """Build Java's program; return its command."""
    names = ("amqp-client", "slf4j-api", "slf4j-nop")
    classes = ":".join([*(f"{JARS}/{name}.jar" for name in names), str(folder)])
    built("javac", "-cp", classes, "-d", str(folder), str(PROGRAMS / "Program.java"))
    return ["java", "-cp", classes, "Program"]


@dataclass(frozen=True)
class Language:
    """What makes the command of a program in a folder, and what that needs."""

    make: Callable[[Path], list[str]]
    program: str
    needs: tuple[str, ...] = ()

    @property
    def missing(self) -> list[str]:
        """What is not installed."""
        paths = [need for need in self.needs if not Path(need).exists()]
        return paths if shutil.which(self.program) else [self.program, *paths]


def interpreted(program: str, file: str) -> Callable[[Path], list[str]]:
    """Return what returns the command of a program that is not built."""
    return lambda _: [program, str(PROGRAMS / file)]


def go(package: str) -> Language:
    """Return Go with one of its packages."""
    return Language(lambda to: of_go(to, package), "go", (f"{GO_PATH}/src/{package}",))


LANGUAGES: Final = {
    "c": Language(of_c, "cc", ("/usr/include/amqp_ssl_socket.h",)),
    "go-streadway": go("github.com/streadway/amqp"),
    "go-rabbitmq": go("github.com/rabbitmq/amqp091-go"),
    "java": Language(of_java, "javac", (f"{JARS}/amqp-client.jar", f"{JARS}/slf4j-nop.jar")),
    "node": Language(interpreted("node", "program.js"), "node", (f"{NODE_MODULES}/amqplib",)),
    "php": Language(interpreted("php", "program.php"), "php"),
    "ruby": Language(interpreted("ruby", "program.rb"), "ruby"),
}


class Program:
    """A program that runs, and says its steps; a context manager."""

    def __init__(
        self, command: list[str], port: int, authority: Path | None, queue: str, said: Path
    ) -> None:
        host = "127.0.0.1" if authority is None else "localhost"
        where = [host, str(port), "-" if authority is None else str(authority), queue]
        self.queue = queue
        self._said = said
        with said.open("wb") as errors:
            self._process = subprocess.Popen(
                ["timeout", "--signal=KILL", str(SECONDS_MAX), *command, *where],
                env=os.environ | {"NODE_PATH": str(NODE_MODULES)},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True,
            )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        # Asked to end, `timeout` hands that on; a signal that it cannot catch would leave a child.
        self._process.terminate()
        self._process.communicate()

    def expect(self, *steps: str) -> None:
        """Read the steps that it says next."""
        assert self._process.stdout is not None
        for step in steps:
            line = self._process.stdout.readline().strip()
            assert line == step, f"{line!r} came, not {step!r}\n{self._said.read_text()}"

    def expect_end(self) -> None:
        """Wait until it ends well."""
        assert self._process.wait() == 0, self._said.read_text()


def broker_with(pki: Pki, folder: Path) -> tuple[BrokerProcess, int]:
    """Return a broker that keeps its ports over a restart, and the port for TLS."""
    plain, secure = free_ports(2)
    broker = pki.broker_process(folder, tls_port=str(secure))
    broker.flags += ["--port", str(plain)]
    return broker, secure


def parameters() -> list[Any]:
    """Return the languages; all but C need what only `make interop` installs."""
    return [
        pytest.param(name, marks=[] if name == "c" else [pytest.mark.toolchains])
        for name in LANGUAGES
    ]


@pytest.mark.parametrize("name", parameters())
def test_a_program_works_in_plain_and_over_tls(name: str, tmp_path: Path) -> None:
    language = LANGUAGES[name]
    if language.missing:
        assert not os.environ.get("LEVERET_TEST_EXPECT_TOOLCHAINS"), f"missing: {language.missing}"
        pytest.skip(f"not installed: {', '.join(language.missing)}")
    command = language.make(tmp_path)
    pki = Pki(tmp_path)
    broker, secure = broker_with(pki, tmp_path / "data")
    with (
        broker,
        Program(command, broker.port, None, "plain", tmp_path / "plain.log") as plain,
        Program(command, secure, pki.authority.certificate, "tls", tmp_path / "tls.log") as safe,
    ):
        both = (plain, safe)
        for program in both:
            program.expect(*BEFORE_THE_CANCEL)
        with connect(broker.uri) as connection:
            for program in both:
                connection.channel().queue_delete(program.queue)
        for program in both:
            program.expect(*BEFORE_THE_RESTART)
        broker.restart()
        for program in both:
            program.expect(*AFTER_THE_RESTART)
            program.expect_end()
        assert "UNEXPECTED" not in broker.output
