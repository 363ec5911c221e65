"""The brokers that a bench compares, the load generator, and where each of them runs.

Placing: with two or more cores a broker gets the first one alone or all of them (`--cpus`), the
generator the last; both sides always get the same.  Data lies on a real disk: a sync on tmpfs costs
nothing and would compare nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import psutil
import rabbitmq

BENCH: Final = Path(__file__).resolve().parent
sys.path.append(str(BENCH.parent / "tests"))

from support.brokers.broker_process import BrokerProcess  # noqa: E402
from support.http.http_api import Api  # noqa: E402
from support.wire import raw  # noqa: E402 (both lie beside the tests)

GENERATOR: Final = BENCH / "amqpload"
RELAY: Final = BENCH / "relay"

#: What the generator prints: published 5 (1/s) confirmed 0 (0/s) delivered 5 (1/s) wall 5.00 …
#: with a line before it that says how long the declares took where there are many.
_SETUP: Final = re.compile(r"setup ([\d.]+)")
_RATES: Final = re.compile(r"(published|confirmed|delivered) \d+ \((\d+)/s\)")
_LATENCIES: Final = re.compile(r"(p50|p99|p999) (\d+)")

#: How long a load lasts at most that is measured by stretches, and what is left out at its begin.
LASTING_SECONDS_MAX: Final = 3_600.0
WARM_SECONDS: Final = 2.0


class GeneratorError(Exception):
    """The load generator ended badly; the text is what it said."""


@dataclass(frozen=True)
class Side:
    """A running broker to put load on."""

    name: str
    port: int
    #: The process that serves, and where Leveret's HTTP API is (None: it has none).
    pid: int = 0
    api: Path | None = None
    #: What runs it, and on which cores, so that it can be started again.
    broker: BrokerProcess | rabbitmq.RabbitMQ | None = None
    cpus: frozenset[int] = frozenset()


def build_generator(program: Path = GENERATOR) -> None:
    """Compile the load generator, or another program, if it is missing or older than its source."""
    source = program.with_suffix(".c")
    if program.exists() and program.stat().st_mtime >= source.stat().st_mtime:
        return
    subprocess.run(["gcc", "-O2", "-o", str(program), str(source)], check=True)


def generate(
    side: Side,
    flags: Sequence[str],
    queue: str,
    seconds: float,
    cpus: set[int],
    wrapper: Sequence[str] = (),
    limit: float | None = None,
) -> dict[str, float]:
    """Put load on a broker and return the figures; `wrapper` is a command that runs the generator.

    `limit` is how many seconds it may take in all.

    Raises: GeneratorError.
    """
    process = generator(side, flags, queue, seconds, cpus, wrapper)
    limit = seconds * 4 + 60 if limit is None else limit
    try:
        out, error = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise GeneratorError(f"{side.name}: no end after {limit:.0f} s") from None
    if process.returncode != 0:
        raise GeneratorError(f"{side.name}: exit code {process.returncode}: {error.strip()}")
    figures = {name: float(rate) for name, rate in _RATES.findall(out)}
    if took := _SETUP.search(out):
        figures["setup"] = float(took[1])
    return figures | {name: float(value) for name, value in _LATENCIES.findall(out)}


def declare_queues(
    side: Side, count: int, prefix: str, limit: float = LASTING_SECONDS_MAX
) -> float:
    """Declare durable queues `<prefix>-more-0` and so on; return how many seconds it took.

    Raises: GeneratorError.
    """
    flags = ("-P", "0", "-C", "0", "-d", "-k", "-N", str(count))
    _, cpus = cores("all")
    return generate(side, flags, prefix, 0, cpus, limit=limit)["setup"]


def generator(
    side: Side,
    flags: Sequence[str],
    queue: str,
    seconds: float,
    cpus: set[int],
    wrapper: Sequence[str] = (),
) -> subprocess.Popen[str]:
    """Start the load generator for so many seconds."""
    where = ["-p", str(side.port), "-Q", queue]
    command = [*wrapper, str(GENERATOR), *where, "-t", str(seconds), *flags]
    with placed(cpus):
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


class Lasting:
    """One load that lasts while it is measured by stretches, with something beside it or without.

    What a run has by chance, such as where its processes and their memory lie, is the same for all
    stretches of it, so they compare better than runs of their own.
    """

    def __init__(self, side: Side, process: subprocess.Popen[str]) -> None:
        self._side = side
        self._process = process

    def stretch(self, seconds: float) -> tuple[float, float]:
        """Return what was delivered in so many seconds: bytes a second, and processor time a byte.

        Raises: GeneratorError.
        """
        read, spent, began = self._read(), processor_seconds(self._side), time.perf_counter()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(seconds)
            raise GeneratorError(f"{self._side.name}: the load ended by itself")
        took = time.perf_counter() - began
        spent, read = processor_seconds(self._side) - spent, self._read() - read
        return read / took, spent / read

    def _read(self) -> int:
        """Return how many bytes the generator has read, which are deliveries and little else."""
        counts = Path(f"/proc/{self._process.pid}/io").read_text()
        return int(counts.split("rchar:")[1].split()[0])


@contextlib.contextmanager
def lasting(side: Side, flags: Sequence[str], queue: str, cpus: set[int]) -> Iterator[Lasting]:
    """Put load on a broker until the end."""
    process = generator(side, flags, queue, LASTING_SECONDS_MAX, cpus)
    try:
        load = Lasting(side, process)
        load.stretch(WARM_SECONDS)
        yield load
    finally:
        process.kill()
        process.communicate()


@contextlib.contextmanager
def thread(work: Callable[[], None], ended: threading.Event) -> Iterator[None]:
    """Run some work in a thread until the end."""
    running = threading.Thread(target=work)
    running.start()
    try:
        yield
    finally:
        ended.set()
        running.join()


def processor_seconds(side: Side) -> float:
    """Return what all threads of a broker's process have taken of the processors so far."""
    spent = 0
    for thread in Path(f"/proc/{side.pid}/task").iterdir():
        # The first number is nanoseconds; the file may go with its thread.
        with contextlib.suppress(OSError):
            spent += int((thread / "schedstat").read_text().split()[0])
    return spent / 1e9


def journal_counts(side: Side) -> dict[str, float]:
    """Return what a Leveret has written, synced and recorded so far; nothing for another broker."""
    if side.api is None:
        return {}
    api = Api(side.api)
    try:
        _, nodes, _ = api.answer("/api/nodes")
    finally:
        api.close()
    assert isinstance(nodes, list)
    names = ("io_write_bytes", "io_sync_count", "records_written")
    return {name: float(nodes[0][name]) for name in names}


def perf(
    side: Side, flags: Sequence[str], queue: str, seconds: float, cpus: set[int]
) -> dict[str, float]:
    """Put load on a broker by `leveret perf` and return its figures.  Raises: GeneratorError."""
    uri = f"amqp://guest:guest@127.0.0.1:{side.port}/%2F"
    command = [sys.executable, "-m", "leveret", "perf", "-j", "-U", uri, "-u", queue]
    with placed(cpus):
        done = subprocess.run(
            [*command, "-z", str(seconds), *flags], capture_output=True, text=True, check=False
        )
    if done.returncode != 0:
        raise GeneratorError(f"exit code {done.returncode}: {done.stderr.strip()}")
    found = json.loads(done.stdout)
    figures = {n: found[f"{n}_per_second"] for n in ("published", "confirmed", "delivered")}
    figures |= found.get("latency_us", {})
    return {name: float(value) for name, value in figures.items()}


def resident(pid: int) -> int:
    """Return the bytes of memory that a process holds."""
    return int(psutil.Process(pid).memory_info().rss)


def peak(pid: int) -> int:
    """Return the most that a process has held since `forget_peak`, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("the kernel does not tell the peak of a process's memory")


def forget_peak(pid: int) -> None:
    """Let the peak begin at what the process holds now."""
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def disk_bytes(directory: Path) -> int:
    """Return what the files of a data directory take on the disk."""
    return sum(path.lstat().st_blocks * 512 for path in directory.rglob("*"))


@contextlib.contextmanager
def placed(cpus: set[int]) -> Iterator[None]:
    """Start processes on these cores only: a child has its parent's."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus & before or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cores(broker_cpus: str) -> tuple[set[int], set[int]]:
    """Return the cores of a broker and of the generator for `one` or `all`."""
    every = sorted(os.sched_getaffinity(0))
    broker = set(every[:1]) if broker_cpus == "one" else set(every)
    return broker, set(every[-1:])


def has_metrics(python: str) -> bool:
    """Tell whether the build of a Python knows `--metrics-port`, which older ones do not."""
    told = subprocess.run(
        [python, "-m", "leveret", "serve", "--help"], capture_output=True, text=True, check=True
    )
    return "--metrics-port" in told.stdout


@contextlib.contextmanager
def leveret(
    python: str,
    name: str,
    directory: Path,
    cpus: set[int],
    wrapper: Sequence[str] = (),
    settings: Mapping[str, str] | None = None,
) -> Iterator[Side]:
    """Run the Leveret that a Python has installed, by `wrapper` where one is given."""
    data = Path(tempfile.mkdtemp(prefix="bench-leveret-", dir=directory))
    process = BrokerProcess(
        data, settings=settings, python=python, wrapper=wrapper, metrics=has_metrics(python)
    )
    try:
        with placed(cpus):
            process.start()
        api = data / "management.sock"
        yield Side(name, process.port, process.pid, api, process, frozenset(cpus))
    finally:
        process.kill()
        shutil.rmtree(data, ignore_errors=True)


@contextlib.contextmanager
def rabbit(
    directory: Path, cpus: set[int], kind: type[rabbitmq.RabbitMQ] = rabbitmq.RabbitMQ
) -> Iterator[Side]:
    """Run Debian's RabbitMQ, or that of Debian's next release."""
    broker = kind(directory)
    try:
        with placed(cpus):
            try:
                broker.start()
            except rabbitmq.RabbitMQError:
                # Its ports were free a moment before, and another process may have taken one.
                broker.start()
        name = f"RabbitMQ {broker.version}"
        yield Side(name, broker.port, broker.pid, None, broker, frozenset(cpus))
    finally:
        broker.stop()


@contextlib.contextmanager
def relay(cpus: set[int]) -> Iterator[Side]:
    """Run the relay in C, which is no broker: what it reaches bounds what a broker can."""
    build_generator(RELAY)
    (port,) = rabbitmq.free_ports(1)
    with placed(cpus):
        process = subprocess.Popen([str(RELAY), str(port)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield Side("C relay", port, process.pid)
    finally:
        process.kill()
        process.communicate()


def killed(side: Side) -> tuple[float, Side]:
    """Kill a broker and start it on its data; return the seconds of the start, and the new side."""
    assert side.broker is not None
    if isinstance(side.broker, rabbitmq.RabbitMQ):
        side.broker.sync_definitions()
    side.broker.kill()
    return started(side)


def started(side: Side) -> tuple[float, Side]:
    """Start a broker that has ended; return the seconds until it is ready, and the new side."""
    assert side.broker is not None
    began = time.monotonic()
    with placed({*side.cpus}):
        side.broker.start()
    seconds = time.monotonic() - began
    return seconds, replace(side, port=side.broker.port, pid=side.broker.pid)


def first_confirm(port: int) -> None:
    """Declare a durable queue and publish to it; return when the message is confirmed."""
    with raw.Connection("127.0.0.1", port).handshake() as connection:
        connection.open_channel(1)
        connection.declare(1, "bench-start", durable=True)
        connection.call(1, "confirm.select")
        connection.send(raw.publish(1, "", "bench-start", b"x" * 16, delivery_mode=2))
        assert connection.expect(1, "basic.ack").delivery_tag == 1


def version(python: str) -> str:
    """Return what `leveret --version` says: the build is in it."""
    command = [python, "-m", "leveret", "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def machine() -> dict[str, str]:
    """Return what a figure depends on beside the code."""
    found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return {
        "processor": found[1] if found else "unknown",
        "cores": str(len(os.sched_getaffinity(0))),
        "python": sys.version.split()[0],
        "load": " ".join(f"{load:.2f}" for load in os.getloadavg()),
    }


def filesystem(directory: Path) -> str:
    """Return the type of the filesystem that a directory is on."""
    command = ["findmnt", "--json", "--output", "FSTYPE", "--target", str(directory)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return "unknown"
    return str(json.loads(done.stdout)["filesystems"][0]["fstype"])
