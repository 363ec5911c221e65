"""`leveret-spark` where nothing else of Leveret is: in each way in which it comes to a Spark.

    .venv/bin/python -m soak.slim [--only NAME]

bare       a virtual environment into which pip installed it, and a session on this machine
executors  a cluster of Spark's own, whose executors have it; the driver has the package `leveret`,
           and its Python lies elsewhere
py-files   the executors and the driver have PySpark and pyarrow, and a zip comes by `--py-files`
archives   the executors have nothing, and an environment packed by venv-pack comes by `--archives`
connect    the Python of a Connect server has it, and the client has pyspark-client alone
artifact   the Python of a Connect server has pyarrow, and the client brings a zip, which is enough
           for batch reads and writes
notebook   a notebook in `PYSPARK_DRIVER_PYTHON=jupyter pyspark`
airflow    the DAG of `examples/airflow` runs twice; it brings the package by `--py-files`

In each a stream is read by the executors, in batch and by a query, and a queue is taken, and each
is written to a stream of its own: every message must be there once, and the executors must have
used the modules that they were to use.
Environments are made by pip, from its index; PySpark is linked from this environment.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
import pyspark

from leveret.client import blocking
from leveret.spark.installation import cache_dir
from leveret.spark.java import find_java_home
from soak import ROOT
from soak.cluster import LISTENING, LOOK_SECONDS, REGISTERED, STREAM, WAIT_SECONDS_MAX, daemon
from support.brokers.broker_process import BrokerProcess

JOB: Final = Path(__file__).with_name("slim_job.py")
SPARK: Final = Path(pyspark.__file__).parent
MESSAGES: Final = 5_000
PORT: Final = 21_250
SERVER: Final = f"sc://127.0.0.1:{PORT}"
SECONDS_MAX: Final = 600
PYSPARK: Final = ("pyspark", "py4j")

#: A notebook that runs the job in the session of `pyspark`, whose JVM was started by `jupyter`.
CELL: Final = """\
import runpy
import sys
import leveret.spark
spark = leveret.spark.session(master=None)
sys.argv[:] = {arguments!r}
runpy.run_path(sys.argv[0], run_name="__main__")
"""

#: Batch reads and writes with a package that the client brings.
ARTIFACT: Final = """\
import leveret.spark
from pyspark.sql import SparkSession
spark = SparkSession.builder.remote({server!r}).getOrCreate()
spark.addArtifact({zip!r}, pyfile=True)
leveret.spark.register(spark)
rows = spark.read.format("leveret").options(uri={uri!r}, stream="in").load()
to = {{"uri": {uri!r}, "stream": "out"}}
rows.select("body").write.format("leveret").options(**to).mode("append").save()
print("rows:", rows.count())
"""


class Slim:
    """The wheel, the environments made so far, and a broker."""

    def __init__(self, place: Path, uri: str) -> None:
        self.place = place
        self.uri = uri
        tool = [sys.executable, str(ROOT / "tools/spark_wheel.py"), str(place / "wheel")]
        subprocess.run(tool, check=True)
        (self.wheel,) = (place / "wheel").iterdir()
        self.zip = place / "leveret_spark.zip"
        self.zip.write_bytes(self.wheel.read_bytes())

    def environment(self, name: str, packages: Sequence[str | Path], linked: Sequence[str]) -> Path:
        """Return the Python of an environment with packages from pip, and others linked."""
        home = self.place / name
        venv.create(home, symlinks=True)
        python = home / "bin" / "python3"
        pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(python)]
        command = [*pip, "install", "--no-compile", *map(str, packages)]
        # What is in this path is not in that environment.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, env=kept)
        if done.returncode:
            raise RuntimeError(f"{name}: pip says {done.stderr[-2000:]}")
        (site,) = (home / "lib").glob("*/site-packages")
        for package in linked:
            spec = importlib.util.find_spec(package)
            if spec is None or spec.origin is None:
                raise RuntimeError(f"this environment has no {package}")
            (site / package).symlink_to(Path(spec.origin).parent)
        return python

    def run(self, name: str, command: Sequence[str | Path], python: Path, **more: str) -> str:
        """Run a job with a Python first in its path, and return what it prints.

        Raises: RuntimeError with the end of its output.
        """
        folder = self.place / f"{name}-driver"
        folder.mkdir(exist_ok=True)
        done = subprocess.run(
            command,
            cwd=folder,
            env=variables(python) | more,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
        if done.returncode:
            lines = (done.stdout + done.stderr).splitlines()
            kept = [line for line in lines if not line.startswith(("\tat ", "\t... "))]
            raise RuntimeError("\n".join([f"{name}:", *kept[-200:]]))
        return done.stdout

    @contextmanager
    def cluster(self, python: Path) -> Iterator[str]:
        """Yield the address of a cluster of one worker, whose executors find this Python."""
        path = f"{python.parent}{os.pathsep}{os.environ['PATH']}"
        name = python.parents[1].name
        log = self.place / f"{name}-master.log"
        with daemon(log, path, "master.Master", LISTENING, "--port", "0") as master:
            log = self.place / f"{name}-worker.log"
            work = str(self.place / f"{name}-work")
            given = ("--cores", "2", "--memory", "1g", "--work-dir", work, master)
            with daemon(log, path, "worker.Worker", REGISTERED, *given):
                yield master

    def job(self, name: str, how: str, *master: str) -> list[str | Path]:
        """Return the arguments that run the job."""
        return [JOB, how, self.uri, self.place / f"{name}-checkpoint", *master]

    def check(self, name: str, told: str, modules: str) -> None:
        """Check what the job and the streams say.  Raises: RuntimeError."""
        answer = json.loads(told.splitlines()[-1])
        print(f"{name}: {answer}", flush=True)
        (place,) = answer.pop("places")
        total = MESSAGES * (MESSAGES - 1) // 2
        if answer != {"rows": MESSAGES, "distinct": MESSAGES, "sum": total}:
            raise RuntimeError(f"{name}: that is not what was published")
        if modules not in place:
            raise RuntimeError(f"{name}: executors have leveret in {place}, not in {modules}")
        with blocking.connect(self.uri, recover=False) as connection:
            channel = connection.channel()
            deadline = time.monotonic() + WAIT_SECONDS_MAX
            for stream in ("out", "copied", "taken"):
                while (
                    count := channel.queue_declare(stream, passive=True).message_count
                ) < MESSAGES:
                    if time.monotonic() > deadline:
                        raise RuntimeError(f"{name}: {stream} has {count} messages")
                    time.sleep(LOOK_SECONDS)
                if count != MESSAGES:
                    raise RuntimeError(f"{name}: {stream} has {count} messages")


def variables(python: Path) -> dict[str, str]:
    """Return the environment of a machine on which nothing says where things are."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LEVERET_", "PYTHON", "PYSPARK_", "SPARK_", "VIRTUAL_ENV"))
    }
    path = f"{python.parent}{os.pathsep}{SPARK / 'bin'}{os.pathsep}{os.environ['PATH']}"
    java = str(find_java_home(cache_dir()))
    return kept | {"PATH": path, "JAVA_HOME": java, "SPARK_LOCAL_IP": "127.0.0.1"}


def submit(master: str, *settings: str) -> list[str | Path]:
    """Return the command that submits a job."""
    quiet = ("--conf", "spark.log.level=ERROR", "--conf", "spark.ui.enabled=false")
    return [SPARK / "bin/spark-submit", "--master", master, *quiet, *settings]


def bare(slim: Slim) -> None:
    """Run the job on this machine."""
    python = slim.environment("bare", [slim.wheel], PYSPARK)
    told = slim.run("bare", [python, *slim.job("bare", "session", "local[2]")], python)
    slim.check("bare", told, str(python.parents[1]))


def executors(slim: Slim) -> None:
    """Run the job on a cluster, whose driver is this Python with the package `leveret`."""
    python = slim.environment("executors", [slim.wheel], [])
    with slim.cluster(python) as master:
        job = slim.job("executors", "session", master)
        here = Path(sys.executable)
        told = slim.run("executors", [here, *job], here, PYSPARK_PYTHON="python3")
    slim.check("executors", told, str(python.parents[1]))


def py_files(slim: Slim) -> None:
    """Submit the job with the zip, which streaming reads need in the path of Spark's JVM too."""
    python = slim.environment("py-files", ["numpy", "pyarrow"], [])
    with slim.cluster(python) as master:
        # The relative path is that of the zip on executors too.
        folder = slim.place / "py-files-driver"
        folder.mkdir()
        slim.zip.rename(folder / slim.zip.name)
        job = [*submit(master, "--py-files", slim.zip.name), *slim.job("py-files", "submitted")]
        told = slim.run("py-files", job, python, PYTHONPATH=slim.zip.name)
        (folder / slim.zip.name).rename(slim.zip)
    slim.check("py-files", told, slim.zip.name)


def archives(slim: Slim) -> None:
    """Submit the job with a packed environment; the driver has it unpacked, at the same path."""
    python = slim.environment("archives", [slim.wheel, "venv-pack"], [])
    home = python.parents[1]
    packed = slim.place / "environment.tar.gz"
    pack = [f"{home}/bin/venv-pack", "--quiet", "--prefix", str(home), "--output", str(packed)]
    subprocess.run(pack, check=True)
    unpacked = slim.place / "archives-driver" / "environment"
    unpacked.mkdir(parents=True)
    subprocess.run(["tar", "-xzf", packed, "-C", unpacked], check=True)
    nothing = slim.environment("nothing", ["pip"], [])
    with slim.cluster(nothing) as master:
        command = submit(master, "--archives", f"{packed}#environment")
        own = {"PYSPARK_PYTHON": "./environment/bin/python"}
        job = slim.job("archives", "submitted")
        told = slim.run("archives", [*command, *job], nothing, **own)
    slim.check("archives", told, "/environment/lib/")


def connect(slim: Slim) -> None:
    """Run a Connect server, and the job in a client."""
    python = slim.environment("connect", [slim.wheel], [])
    with served(slim, python):
        client = slim.environment("client", [f"pyspark-client<={pyspark.__version__}"], [])
        told = slim.run("connect", [client, *slim.job("connect", "connect", SERVER)], client)
    slim.check("connect", told, str(python.parents[1]))


def artifact(slim: Slim) -> None:
    """Bring the package to a Connect server from the client.  Raises: RuntimeError."""
    with served(slim, slim.environment("artifact", ["numpy", "pyarrow"], [])):
        client = Path(sys.executable)
        program = ARTIFACT.format(server=SERVER, zip=str(slim.zip), uri=slim.uri)
        told = slim.run("artifact", [client, "-c", program], client)
    print(f"artifact: {told.strip()}", flush=True)
    if told.split()[-1] != str(MESSAGES):
        raise RuntimeError("artifact: that is not what was published")


@contextmanager
def served(slim: Slim, python: Path) -> Iterator[None]:
    """Run a Connect server that finds a Python first."""
    given = ("--conf", f"spark.connect.grpc.binding.port={PORT}")
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [*submit("local[2]", *given), "--class", server, "spark-internal"]
    with (slim.place / f"{python.parents[1].name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, env=variables(python), stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        wait_for_port(process)
        yield
    finally:
        process.terminate()
        process.wait()


def wait_for_port(process: subprocess.Popen[bytes]) -> None:
    """Wait until the server listens.  Raises: RuntimeError."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while process.poll() is None and time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", PORT)) == 0:
                return
        time.sleep(LOOK_SECONDS)
    raise RuntimeError("the Connect server does not come up")


def notebook(slim: Slim) -> None:
    """Execute a notebook, in which `pyspark` has made a session."""
    python = slim.environment("notebook", [slim.wheel, "ipykernel", "nbconvert"], PYSPARK)
    cell = CELL.format(arguments=[str(word) for word in slim.job("notebook", "plain")])
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    code: dict[str, object] = {"cell_type": "code", "metadata": {}, "outputs": []}
    page = slim.place / "page.ipynb"
    page.write_text(
        json.dumps(
            {
                "cells": [code | {"id": "job", "source": cell, "execution_count": None}],
                "metadata": {"kernelspec": kernel},
                "nbformat": 4,
                "nbformat_minor": 5,
            }
        )
    )
    options = f"nbconvert --to notebook --execute --stdout {page}"
    own = {"PYSPARK_DRIVER_PYTHON": "jupyter", "PYSPARK_DRIVER_PYTHON_OPTS": options}
    told = slim.run("notebook", [SPARK / "bin/pyspark", "--master", "local[2]"], python, **own)
    outputs = json.loads(told[told.index("{") :])["cells"][0]["outputs"]
    text = "".join(part for output in outputs for part in output.get("text", []))
    slim.check("notebook", text, str(python.parents[1]))


def airflow(slim: Slim) -> None:
    """Run the DAG twice, with new messages before each run.  Raises: RuntimeError."""
    needed = ["apache-airflow>=3,<4", "apache-airflow-providers-apache-spark"]
    command = slim.environment("airflow", needed, []).with_name("airflow")
    workers = slim.environment("workers", ["numpy", "pyarrow"], [])
    lake = slim.place / "lake"
    with blocking.connect(slim.uri, recover=False) as there:
        there.channel().queue_declare("orders", durable=True, arguments=STREAM)
    own = {
        "AIRFLOW_HOME": str(slim.place / "airflow-home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "examples" / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "LEVERET_URI": slim.uri,
        "LEVERET_SPARK_ZIP": str(slim.zip),
        "ORDERS_LAKE": str(lake),
    }
    slim.run("airflow", [command, "db", "migrate"], workers, **own)
    with slim.cluster(workers) as master:
        host, _, port = master.rpartition(":")
        connection = {"conn_type": "spark", "host": host, "port": int(port)}
        own["AIRFLOW_CONN_SPARK_DEFAULT"] = json.dumps(connection)
        for run in (1, 2):
            publish(slim.uri, "orders")
            slim.run("airflow", [command, "dags", "test", "archive_orders"], workers, **own)
            rows = pq.read_table(lake, columns=["offset"])
            count, distinct = rows.num_rows, len(rows["offset"].unique())
            print(f"airflow: {count} rows, {distinct} distinct, after run {run}", flush=True)
            if (count, distinct) != (run * MESSAGES, run * MESSAGES):
                raise RuntimeError("that is not what was published")


SCENARIOS: Final[dict[str, Callable[[Slim], None]]] = {
    "bare": bare,
    "executors": executors,
    "py-files": py_files,
    "archives": archives,
    "connect": connect,
    "artifact": artifact,
    "notebook": notebook,
    "airflow": airflow,
}


def prepare(uri: str) -> None:
    """Make the streams anew, and publish numbers."""
    with blocking.connect(uri, recover=False) as connection:
        channel = connection.channel()
        for name in ("out", "copied", "taken", "in"):
            channel.queue_delete(name)
            channel.queue_declare(name, durable=True, arguments=STREAM)
        channel.queue_delete("waiting")
        channel.queue_declare("waiting", durable=True)
    for name in ("in", "waiting"):
        publish(uri, name)


def publish(uri: str, queue: str) -> None:
    """Publish numbers to a stream or a queue."""
    with blocking.connect(uri, recover=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        for number in range(MESSAGES):
            channel.publish_nowait(b"%d" % number, "", queue)
        channel.wait_for_confirms()


def main() -> int:
    """Run it."""
    parser = argparse.ArgumentParser(prog="soak.slim", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", action="append", choices=SCENARIOS)
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="slim-") as scratch,
        BrokerProcess(Path(scratch) / "broker", settings={"http_port": "0"}) as broker,
    ):
        slim = Slim(Path(scratch), broker.uri)
        for name in given.only or SCENARIOS:
            prepare(broker.uri)
            began = time.monotonic()
            SCENARIOS[name](slim)
            print(f"{name}: holds, {time.monotonic() - began:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
