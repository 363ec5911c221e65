"""The run of the demo, stage by stage."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from leveret.cli import exits
from leveret.cli.demo.checks import Checks
from leveret.cli.demo.lake import DemoLake, check_lake, run_spark
from leveret.cli.demo.lines import Input, read_input
from leveret.cli.demo.node import DemoBroker
from leveret.cli.demo.topology import (
    EXCHANGE,
    STREAM,
    WorkQueue,
    declare,
    expected,
    work_queues,
)
from leveret.cli.demo.traffic import BATCH, Client, DemoPublisher, Worker, wait_for
from leveret.client.blocking import connect
from leveret.escaping import escaped

#: The time limit for publishing and consuming all messages, with the crash.
_TRAFFIC_SECONDS_MAX: Final = 120.0

#: The maximum disk space that a run with the shipped lines uses.
_DISK_MB: Final = 100

#: The maximum number of routing keys printed from the report.
_KEYS_SHOWN: Final = 10

#: The reason for the repeats that the checks count.
_REPEATS: Final = (
    "repeats: after the kill, unconfirmed lines were published again, and unacked ones redelivered"
)

#: The exit code of a process killed by SIGKILL.
_KILLED: Final = -9


def run(directory: Path | None, output: Path | None, *, spark: bool) -> int:
    """Run the demo; return the exit code.  Raises: Failure."""
    console = Console(highlight=False)
    began = time.monotonic()
    found = read_input(directory)
    checks = Checks()
    place = _workplace(output)
    took = "about half a minute" if spark else "a few seconds"
    _note(console, f"this takes {took}, and up to {_DISK_MB} MB of disk in {place}")
    node = DemoBroker(place)
    try:
        _run(node, place, found, checks, console, spark)
    except BaseException:
        _note(console, f"the output of the broker and Spark is in {place}")
        raise
    finally:
        node.kill()
    console.print()
    checks.print(console)
    _note(console, _REPEATS)
    console.print(f"done in {time.monotonic() - began:.0f} s")
    _leave(console, place, whole=output is not None or not checks.hold, spark=spark)
    if not checks.hold:
        return exits.NOTHING
    _note(
        console,
        f"next: {_typed()} serve starts a broker; its page is http://localhost:15672 (user guest, "
        "password guest)",
    )
    return exits.OK


def _typed() -> str:
    """Return the command `leveret` as the user can type it, such as `.venv/bin/leveret`."""
    command = sys.argv[0]
    is_script = Path(command).name == "leveret"
    return command if is_script and shutil.which("leveret") != command else "leveret"


def _workplace(output: Path | None) -> Path:
    """Return a directory: `output`, which must be new or empty, or a temporary one."""
    if output is None:
        return Path(tempfile.mkdtemp(prefix="leveret-demo-"))
    try:
        output.mkdir(parents=True, exist_ok=True)
        filled = any(output.iterdir())
    except OSError as error:
        raise exits.Failure(f"--output: {error}", exits.USAGE) from None
    if filled:
        raise exits.Failure(f"--output: {output} is not empty", exits.USAGE)
    return output.resolve()


def _leave(console: Console, place: Path, *, whole: bool, spark: bool) -> None:
    """Keep all files or only the report, and print their location."""
    report = place / "report.html"
    if whole:
        kept = ", ".join(sorted(path.name for path in place.iterdir()))
        _note(console, f"kept in {place}: {kept}")
    else:
        for path in place.iterdir():
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            elif path != report:
                path.unlink(missing_ok=True)
        if not spark:
            place.rmdir()
    if spark:
        _note(console, f"the report, for a browser: {report.as_uri()}")


def _run(
    node: DemoBroker, place: Path, found: Input, checks: Checks, console: Console, spark: bool
) -> None:
    """Run all stages and add their checks."""
    _announce(console, f"{len(found.lines):,} log lines: {found.origin}")
    node.start()
    queues = work_queues(found.sources)
    with connect(node.uri) as connection:
        declare(connection.channel(), queues)
    _announce(
        console,
        f"broker {node.uri.partition('@')[2]}: exchange {EXCHANGE}, stream "
        f"{STREAM}, queues {', '.join(queue.name for queue in queues)}",
    )
    publisher = DemoPublisher(node, found.lines)
    workers: list[Worker] = []
    for queue in queues:
        if lines := expected(queue, found.lines):
            workers.append(Worker(node, queue, lines, publisher.finished))
        else:
            _note(console, f"no line matches the queue {queue.name}, which must stay empty")
    _move(node, publisher, workers, checks, console)
    _check_traffic(publisher, workers, checks)
    _check_empty(node, queues, checks)
    if spark:
        _announce(console, "Spark archives the stream to Parquet and reports on it")
        with console.status(f"Spark is at work; its log is {place / 'spark.log'}"):
            lake = run_spark(node.uri, place)
        check_lake(lake, found.lines, publisher.sent_again, checks)
        _print_report(lake, console)
    checks.equal("exit code of the broker's graceful stop", node.stop(), 0)


def _announce(console: Console, text: str) -> None:
    """Print the next stage."""
    console.print(Text(escaped(text), style="bold"), soft_wrap=True)


def _note(console: Console, text: str) -> None:
    """Print a remark."""
    console.print(Text(escaped(text)), soft_wrap=True)


def _move(
    node: DemoBroker,
    publisher: DemoPublisher,
    workers: list[Worker],
    checks: Checks,
    console: Console,
) -> None:
    """Run the publisher and the workers; kill and restart the broker meanwhile."""
    total = len(publisher.lines)
    kill_at = max(total // 3, 1)
    clients: list[Client] = [publisher, *workers]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        update = _progress(progress, publisher, workers)
        for client in clients:
            client.start()
        while publisher.sent < kill_at and publisher.is_alive():
            update()
            publisher.join(0.001)
        in_flight = publisher.sent - publisher.confirmed
        code = node.kill()
        publisher.crashed.set()
        progress.console.print(
            Text(f"killed the broker (SIGKILL) after {publisher.confirmed:,} confirms", "bold red")
        )
        node.start()
        progress.console.print(Text("started it again on the same data", "bold"))
        wait_for(clients, _TRAFFIC_SECONDS_MAX, update)
    checks.add(
        "the broker was killed in the middle of publishing",
        f"{in_flight:,} publishes in flight",
        code == _KILLED and 0 < len(publisher.sent_again) <= BATCH,
    )


def _progress(
    progress: Progress, publisher: DemoPublisher, workers: list[Worker]
) -> Callable[[], None]:
    """Return a function that updates the progress bars."""
    published = progress.add_task("confirmed", total=len(publisher.lines))
    bars = [progress.add_task(w.queue.name, total=len(w.expected)) for w in workers]

    def update() -> None:
        progress.update(published, completed=publisher.confirmed)
        for bar, worker in zip(bars, workers, strict=True):
            progress.update(bar, completed=len(worker.seen))

    return update


def _check_traffic(publisher: DemoPublisher, workers: list[Worker], checks: Checks) -> None:
    """Compare the received lines with the published ones."""
    for client in (publisher, *workers):
        if client.error is not None:
            checks.add(f"{client.name} ends well", str(client.error), False)
    checks.equal("lines published and confirmed", publisher.confirmed, len(publisher.lines))
    for worker in workers:
        _check_worker(worker, publisher.sent_again, checks)


def _check_worker(worker: Worker, sent_again: set[str], checks: Checks) -> None:
    """Compare the messages of one queue with the expected ones, and record it as one check."""
    came, wanted = len(worker.seen), len(worker.expected)
    repeats = worker.deliveries - worker.wrong - came
    found = f"{came:,}" if came == wanted else f"{came:,}, not {wanted:,}"
    if worker.wrong:
        found += f"; {worker.wrong:,} altered or misrouted"
    if repeats:
        found += f"; {repeats:,} repeated"
    unexplained = set(worker.repeats) - sent_again
    if unexplained:
        found += f", {len(unexplained):,} of them without a reason"
    checks.add(
        f"{worker.queue.name}: its lines and no others, unaltered, acked",
        found,
        came == wanted and not worker.wrong and not unexplained,
    )


def _check_empty(node: DemoBroker, queues: tuple[WorkQueue, ...], checks: Checks) -> None:
    """Check that all queues are empty, including those that no line matches."""
    with connect(node.uri) as connection:
        channel = connection.channel()
        left = sum(
            channel.queue_declare(queue.name, passive=True).message_count for queue in queues
        )
    checks.equal(f"messages left in the {len(queues)} queues", left, 0)


def _print_report(lake: DemoLake, console: Console) -> None:
    """Print the report's totals and the routing keys with the most messages."""
    report = lake.report
    _announce(
        console,
        f"report on the archive: {report.messages:,} messages, {report.bytes:,} bytes, "
        f"{report.keys_total:,} routing keys",
    )
    table = Table(box=None, pad_edge=False)
    table.add_column("routing key")
    table.add_column("messages", justify="right")
    table.add_column("bytes", justify="right")
    for key in report.keys[:_KEYS_SHOWN]:
        table.add_row(Text(escaped(key.routing_key)), f"{key.messages:,}", f"{key.bytes:,}")
    console.print(table)
