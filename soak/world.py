"""One world to be killed in: a broker, a publisher, a Spark driver, and the directories of all.

Invariants: the driver's progress is what its checkpoints say, so that a kill always comes after
progress; what is judged is what is left when publisher and driver have ended in peace.
"""

from __future__ import annotations

import itertools
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import numpy as np
import psutil

from leveret.client.blocking import connect
from leveret.spark.columns.messages import STREAM_OFFSET
from soak import ROOT, counts, environment
from soak.board import Row
from soak.load import Load
from support.brokers.broker_process import BrokerProcess

#: How long a driver may take for one more batch, from its start on; and to the end of all.  With
#: twenty processes for each core a start alone took 100 s.
PROGRESS_SECONDS_MAX: Final = 600.0
FINISH_SECONDS_MAX: Final = 3600.0
LOOK_SECONDS: Final = 0.05

#: How the command of a worker process that runs tasks ends (others do Spark's planning).
WORKER: Final = ["pyspark.worker"]

#: Where a job puts its rows.
LAKES: Final = {"archive": "lake", "queue": "taken"}


class World:
    """Everything that one scenario needs; a context manager."""

    def __init__(
        self,
        jobs: Sequence[str],
        *,
        dedup: str = "auto",
        ack_mode: str = "afterBatch",
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.jobs = list(jobs)
        self.place = Path(tempfile.mkdtemp(prefix="soak-"))
        self._given = {"place": str(self.place), "dedup": dedup, "ack_mode": ack_mode}
        self.broker = BrokerProcess(self.place / "broker", settings=settings)
        self._driver: subprocess.Popen[bytes] | None = None
        self.kills = 0
        self._load: Load | None = None
        self._published = 0
        self._log = (self.place / "driver.log").open("ab")

    def __enter__(self) -> Self:
        self.broker.start()
        # It comes back at the same address.
        self.broker.flags = ["--port", str(self.broker.port)]
        self._given["uri"] = self.broker.uri
        source = "waiting" if self.jobs == ["queue"] else "in"
        with connect(self.broker.uri, recover=False) as connection, connection.channel() as channel:
            if source == "waiting":
                channel.queue_declare(source, durable=True)
            else:
                for name in ("in", "out"):
                    stream = {"x-queue-type": "stream"}
                    channel.queue_declare(name, durable=True, arguments=stream)
                channel.queue_declare("kept", durable=True)
        self._load = Load(self.broker.uri, source)
        self._load.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.kill_driver()
        self.broker.kill()
        self._log.close()
        if kind is None:
            shutil.rmtree(self.place)

    # -- the driver --------------------------------------------------------------------------------

    def start_driver(self, mode: str = "run") -> None:
        """Start the Spark program."""
        lakes = [LAKES[job] for job in self.jobs if job in LAKES]
        given = self._given | {"mode": mode, "jobs": self.jobs, "lakes": lakes}
        self._driver = subprocess.Popen(
            [sys.executable, "-m", "soak.driver", json.dumps(given)],
            env=environment(),
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    def _processes(self) -> list[psutil.Process]:
        """Return the driver's processes, the JVM first."""
        if self._driver is None:
            return []
        try:
            root = psutil.Process(self._driver.pid)
            below = root.children(recursive=True)
        except psutil.NoSuchProcess:
            return []
        return sorted([*below, root], key=lambda process: not _is_jvm(process))

    def kill_driver(self, *, jvm_only: bool = False) -> None:
        """Kill the JVM, and unless it is the JVM alone, everything that belongs to it.

        Workers that are left alone notice it by themselves, as on another machine.
        """
        driver = self._driver
        if driver is None:
            return
        processes = self._processes()
        for process in processes[:1] if jvm_only else processes:
            kill_process(process)
        driver.kill()
        driver.wait()
        self._driver = None

    def kill_worker(self, choose: Callable[[int], int]) -> bool:
        """Kill one Python worker that runs tasks, chosen by its number; False: there is none."""
        workers = [process for process in self._processes() if is_worker(process)]
        if not workers:
            return False
        kill_process(workers[choose(len(workers))])
        return True

    def batches(self) -> int:
        """Return how many batches all queries have committed."""
        return sum(map(self._committed, self.jobs))

    def _committed(self, job: str) -> int:
        """Return how many batches a query has committed."""
        names = (path.name for path in (self.place / job / "commits").glob("*"))
        return max((int(name) + 1 for name in names if name.isdigit()), default=0)

    def wait_for_batches(self, count: int) -> None:
        """Wait until each query has committed so many more.  Raises: SoakError when one does not.

        Each: Spark refuses a checkpoint whose first batch was killed while it was written.
        """
        goals = {job: self._committed(job) + count for job in self.jobs}
        deadline = time.monotonic() + PROGRESS_SECONDS_MAX
        while any(self._committed(job) < goal for job, goal in goals.items()):
            if self._driver is None or self._driver.poll() is not None:
                raise SoakError(f"the driver has ended: {self.tail()}")
            if time.monotonic() > deadline:
                raise SoakError(f"no batch in {PROGRESS_SECONDS_MAX:.0f} s: {self.tail()}")
            time.sleep(LOOK_SECONDS)

    def finish(self) -> int:
        """End the publisher, let the queries do what is left; return how many were published.

        Raises: SoakError.
        """
        assert self._load is not None
        self._published = self._load.end()
        self.kill_driver()
        self.start_driver("finish")
        assert self._driver is not None
        try:
            code = self._driver.wait(FINISH_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            raise SoakError(f"the driver does not end: {self.tail()}") from None
        if code != 0:
            raise SoakError(f"the driver ended by {code}: {self.tail()}")
        return self._published

    def restarts(self) -> int:
        """Return how often a query failed and was started again."""
        log = (self.place / "driver.log").read_text(errors="replace")
        return sum(line.startswith("RESTART") for line in log.splitlines())

    def tail(self) -> str:
        """Return the end of what the driver printed."""
        return (self.place / "driver.log").read_text(errors="replace")[-3000:]

    # -- judging -----------------------------------------------------------------------------------

    def judge_lake(self, name: str, job: str, *, marked: bool = False) -> Row:
        """Count the rows of a lake; with `marked` rows that are redelivered may come twice."""
        rows = tuple(np.load(self.place / f"{LAKES[job]}.npy"))
        return counts.of_lake(
            name, self.kills, self._published, rows, marked=marked, note=self._note()
        )

    def judge_out(self, name: str, where: str = "out") -> Row:
        """Count what the sink has published to the stream `out`, or to the queue `kept`."""
        by_task: dict[object, list[int]] = {}
        with connect(self.broker.uri, recover=False) as connection, connection.channel() as channel:
            count = channel.queue_declare(where, passive=True).message_count
            channel.qos(1000)
            arguments: dict[str, object] = {STREAM_OFFSET: "first"} if where == "out" else {}
            consumer = channel.consume(where, arguments=arguments)
            for number, message in enumerate(itertools.islice(consumer, count), 1):
                if number % 500 == 0:
                    channel.ack(message.delivery_tag, multiple=True)
                task = message.headers.get("x-publisher")
                by_task.setdefault(task, []).append(int(message.body))
        note = self._note()
        return counts.of_stream(name, self.kills, self._published, by_task.values(), note=note)

    def _note(self) -> str:
        return f"{self.batches():,} batches, {self.restarts():,} queries started again"


class SoakError(Exception):
    """The world stands still or broke down; the text says how."""


def _is_jvm(process: psutil.Process) -> bool:
    try:
        return process.name() == "java"
    except psutil.NoSuchProcess:
        return False


def is_worker(process: psutil.Process) -> bool:
    """Tell whether a process runs tasks: a child of the daemon that does nothing else."""
    try:
        parent = process.parent()
        return (
            parent is not None
            and process.cmdline()[-1:] == WORKER
            and parent.cmdline()[-1:] == WORKER
        )
    except psutil.Error:
        return False


def kill_process(process: psutil.Process) -> None:
    """Send SIGKILL, if it is there to be killed."""
    try:
        process.send_signal(signal.SIGKILL)
    except psutil.NoSuchProcess:
        return
