"""Real log lines through all of it: published, archived, reported, replayed, routed, triaged.

    .venv/bin/python -m soak.loghub DIRECTORY [--times 30]

The files `*.log` of a directory (of Loghub, or any) are published so many times over to a topic
exchange, a line a message, under the key `<file>.<level>`.  Every count that a job gives is
compared with what was published, as a plain loop over the lines counts it; one that differs makes
the exit code 1.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.client import BasicProperties, blocking
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXCHANGE: Final = "logs"
STREAM: Final = "logs"
DEAD: Final = "dead"
OTHER_VHOST: Final = "copy"

#: A queue for each of these, whose worker rejects what it gets: those are the dead letters.
ALERTS: Final = {"alerts.error": "*.error", "alerts.linux": "Linux.*"}
#: Where triaged letters of one queue go again.
AGAIN: Final = "again"

#: What the lines are routed through offline: queues by their binding keys.
SECOND: Final = {
    "hdfs": "HDFS.#",
    "problems": "*.error",
    "warnings": "*.warn",
    "both": "Spark.*",
    "nothing": "no.such.key",
}

_LEVELS: Final = (
    ("error", re.compile(rb"\b(?:error|fatal|severe|failed|failure|exception)\b", re.IGNORECASE)),
    ("warn", re.compile(rb"\bwarn(?:ing)?\b", re.IGNORECASE)),
)

#: Publishes in flight at most; a wait for the confirms follows.
WINDOW: Final = 20_000


@dataclass
class Account:
    """What was published, and whether each count agrees with it."""

    keys: Counter[str] = field(default_factory=Counter)
    bytes: int = 0
    failed: int = 0

    def check(self, what: str, found: object, expected: object) -> None:
        """Print a line that says whether two counts are the same."""
        same = found == expected
        self.failed += not same
        shown = f"{found:,}" if isinstance(found, int) else str(found)
        wanted = "" if same else f", not {expected}"
        print(f"{'ok   ' if same else 'WRONG'} {what}: {shown}{wanted}", flush=True)

    @property
    def messages(self) -> int:
        """How many were published."""
        return self.keys.total()

    def matching(self, pattern: str) -> int:
        """Count the messages whose key fits a binding key, by a regular expression of our own."""
        parts = [_WORD.get(word, re.escape(word)) for word in pattern.split(".")]
        fits = re.compile(r"\.".join(parts).replace(r"\.(?:.*)", r"(?:\..*)?"))
        return sum(count for key, count in self.keys.items() if fits.fullmatch(key))


_WORD: Final = {"*": r"[^.]+", "#": r"(?:.*)"}


def level(line: bytes) -> str:
    """Return a line's level."""
    return next((name for name, words in _LEVELS if words.search(line)), "info")


def lines(directory: Path) -> list[tuple[str, bytes]]:
    """Return the routing key and the text of every line of all files."""
    return [
        (f"{path.stem}.{level(line)}", line)
        for path in sorted(directory.glob("*.log"))
        for line in path.read_bytes().splitlines()
    ]


def declare(uri: str) -> None:
    """Make the topology."""
    with blocking.connect(uri, recover=False) as connection:
        channel = connection.channel()
        channel.exchange_declare(EXCHANGE, "topic", durable=True)
        channel.exchange_declare(DEAD, "fanout", durable=True)
        for name, exchange in ((STREAM, EXCHANGE), (DEAD, DEAD)):
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
            channel.queue_bind(name, exchange, "#")
        for name, key in ALERTS.items():
            channel.queue_declare(name, durable=True, arguments={"x-dead-letter-exchange": DEAD})
            channel.queue_bind(name, EXCHANGE, key)


def publish(uri: str, found: list[tuple[str, bytes]], times: int, account: Account) -> None:
    """Publish every line so many times, all of it confirmed."""
    persistent = BasicProperties(delivery_mode=2, content_type="text/plain")
    with blocking.connect(uri, recover=False) as connection:
        channel = connection.channel()
        channel.confirm_select()
        sent = 0
        for _ in range(times):
            for key, line in found:
                channel.publish_nowait(line, EXCHANGE, key, persistent)
                sent += 1
                if sent % WINDOW == 0:
                    channel.wait_for_confirms()
        channel.wait_for_confirms()
    for key, line in found:
        account.keys[key] += times
        account.bytes += times * len(line)


def reject_all(uri: str) -> Counter[str]:
    """Reject what waits in the queues for alerts; return how much of each."""
    rejected: Counter[str] = Counter()
    with blocking.connect(uri, recover=False) as connection:
        for queue in ALERTS:
            channel = connection.channel()
            channel.qos(2000)
            with channel.consume(queue, inactivity_timeout=2.0) as messages:
                for count, message in enumerate(messages, 1):
                    rejected[queue] = count
                    if count % 1000 == 0:
                        channel.nack(message.delivery_tag, multiple=True, requeue=False)
                channel.nack(0, multiple=True, requeue=False)
    return rejected


def count_of(uri: str, queue: str) -> int:
    """Return how many messages a queue or stream holds."""
    with blocking.connect(uri, recover=False) as connection:
        return connection.channel().queue_declare(queue, passive=True).message_count


def definitions() -> dict[str, object]:
    """Return the second topology as definitions."""
    return {
        "vhosts": [{"name": "/"}],
        "exchanges": [
            {"name": EXCHANGE, "vhost": "/", "type": "topic", "durable": True,
             "auto_delete": False, "internal": False, "arguments": {}}
        ],
        "queues": [
            {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
            for name in SECOND
        ],
        "bindings": [
            {"source": EXCHANGE, "vhost": "/", "destination": name, "destination_type": "queue",
             "routing_key": key, "arguments": {}}
            for name, key in SECOND.items()
        ],
    }  # fmt: skip


# -- the jobs --------------------------------------------------------------------------------------


def archived(spark: SparkSession, uri: str, place: Path, account: Account) -> None:
    """Archive the stream, and report on the archive."""
    from leveret.pipelines import archive, report

    result = archive(spark, uri, STREAM, place / "lake")
    account.check("archived", result.records, account.messages)
    account.check(
        "archived by a second run", archive(spark, uri, STREAM, place / "lake").records, 0
    )
    found = report(spark, path=place / "lake", html_path=place / "report.html")
    account.check("reported messages", found.messages, account.messages)
    account.check("reported bytes", found.bytes, account.bytes)
    by_key = {key.routing_key: key.messages for key in found.keys}
    account.check("reported keys that agree", _agreeing(by_key, account.keys), len(account.keys))


def _agreeing(found: dict[str, int], expected: Counter[str]) -> int:
    return sum(found.get(key) == count for key, count in expected.items())


def replayed(spark: SparkSession, other: str, place: Path, account: Account) -> None:
    """Replay the archive into another vhost, twice: the second time adds nothing."""
    from leveret.pipelines import Destination, replay

    for turn in ("replayed", "replayed again, and there"):
        replay(spark, Destination(other, stream=STREAM), path=place / "lake", name="loghub")
        account.check(turn, count_of(other, STREAM), account.messages)
    errors = Destination(other, stream="errors")
    sent = replay(spark, errors, path=place / "lake", patterns=["*.error"], name="loghub errors")
    account.check("replayed by a pattern", sent.messages, account.matching("*.error"))
    account.check("and there", count_of(other, "errors"), account.matching("*.error"))


def routed(spark: SparkSession, place: Path, account: Account) -> None:
    """Route the archive through a topology that no broker has."""
    from leveret.pipelines import route

    found = route(spark, definitions(), path=place / "lake", html_path=place / "route.html")
    account.check("routed", found.messages, account.messages)
    got = {load.queue: load.messages for load in found.queues}
    for queue, pattern in SECOND.items():
        account.check(f"routed to {queue}", got.get(queue, 0), account.matching(pattern))
    covered = [key for key in account.keys if not _goes_somewhere(key)]
    unroutable = sum(account.keys[key] for key in covered)
    account.check("unroutable", found.unroutable_messages, unroutable)


def _goes_somewhere(key: str) -> bool:
    one = Account(Counter({key: 1}))
    return any(one.matching(pattern) for pattern in SECOND.values())


def triaged(
    spark: SparkSession, uri: str, place: Path, rejected: Counter[str], account: Account
) -> None:
    """Group the dead letters, and publish those of one queue again."""
    from leveret.pipelines import deadletter, republish

    found = deadletter(spark, uri=uri, stream=DEAD, html_path=place / "dead.html")
    account.check("dead letters", found.letters, rejected.total())
    account.check("that are none", found.others, 0)
    by_queue: Counter[str] = Counter()
    for group in found.groups:
        by_queue[group.queue] += group.letters
        account.check(f"reason of {group.queue}", group.reason, "rejected")
    if found.groups_total == len(found.groups):
        account.check("dead letters by queue", dict(by_queue), dict(rejected))
    with blocking.connect(uri, recover=False) as connection:
        channel = connection.channel()
        for queue, key in ALERTS.items():
            channel.queue_unbind(queue, EXCHANGE, key)
        channel.queue_declare(AGAIN, durable=True)
        channel.queue_bind(AGAIN, EXCHANGE, "#")
    sent = republish(spark, uri, uri=uri, stream=DEAD, queue="alerts.linux", name="loghub again")
    account.check("published again", sent.messages, rejected["alerts.linux"])
    account.check("and there", count_of(uri, AGAIN), rejected["alerts.linux"])


def main() -> int:
    """Run all of it and print each count."""
    parser = argparse.ArgumentParser(prog="loghub", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("directory", type=Path)
    parser.add_argument("--times", type=int, default=30)
    parser.add_argument("--keep", type=Path, help="keep the lake and the pages there")
    options = parser.parse_args()
    found = lines(options.directory)
    if not found:
        parser.error(f"no *.log in {options.directory}")
    account = Account()
    with tempfile.TemporaryDirectory(prefix="loghub-") as scratch:
        place = options.keep or Path(scratch)
        with BrokerProcess(Path(scratch) / "data") as broker:
            run(broker, place, found, options.times, account)
    print(f"{account.messages:,} messages; {account.failed} counts differ")
    return 1 if account.failed else 0


def run(
    broker: BrokerProcess,
    place: Path,
    found: list[tuple[str, bytes]],
    times: int,
    account: Account,
) -> None:
    """Publish, and have every job count."""
    import leveret.spark

    uri = broker.uri
    Api(broker.data_dir / "management.sock").change("PUT", f"/api/vhosts/{OTHER_VHOST}")
    Api(broker.data_dir / "management.sock").change(
        "PUT",
        f"/api/permissions/{OTHER_VHOST}/guest",
        {"configure": ".*", "write": ".*", "read": ".*"},
    )
    other = f"{uri.rstrip('/').removesuffix('/%2F')}/{OTHER_VHOST}"
    with blocking.connect(other, recover=False) as connection:
        channel = connection.channel()
        for stream in (STREAM, "errors"):
            channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
    declare(uri)
    with timed(f"publish {times} times {len(found):,} lines"):
        publish(uri, found, times, account)
    account.check("in the stream", count_of(uri, STREAM), account.messages)
    with timed("reject"):
        rejected = reject_all(uri)
    for queue, pattern in ALERTS.items():
        account.check(f"rejected from {queue}", rejected[queue], account.matching(pattern))
    spark = leveret.spark.session("loghub", master="local[2]", memory="2g")
    spark.sparkContext.setLogLevel("ERROR")
    jobs: dict[str, Callable[[], None]] = {
        "archive and report": lambda: archived(spark, uri, place, account),
        "replay": lambda: replayed(spark, other, place, account),
        "route": lambda: routed(spark, place, account),
        "dead letters": lambda: triaged(spark, uri, place, rejected, account),
    }
    for name, job in jobs.items():
        with timed(name):
            job()
    spark.stop()


class timed:  # noqa: N801  used like a function
    """Print how long a block took."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, *_: object) -> None:
        print(f"      {self._what}: {time.monotonic() - self._began:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    raise SystemExit(main())
