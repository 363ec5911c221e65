"""Clusters under load with members that are killed and added, and a ledger of handled messages.

Members are processes (`cluster_member`).  For each cluster, every message must be handled; a
message handled twice must be marked as redelivered the second time; and in clusters with partitions
the messages of a key must be handled in order.  After a member is killed, the broker redelivers its
unacked messages, so the order may jump back to a redelivered message, but never ahead.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leveret import BlockingConsumer, BlockingProducer, ClusterMessage

PROGRAM: Final = Path(__file__).parent / "cluster_member.py"

#: The clusters with their numbers of partitions.
CLUSTERS: Final = {"billing": 8, "shipping": 16, "search": 0}
MEMBERS: Final = 4
KEYS: Final = 100

#: The load fails if no message is handled for this long.
SECONDS_MAX: Final = 120.0


class LoadError(Exception):
    """The load made no progress."""


@dataclass
class Ledger:
    """The messages that one cluster has handled."""

    in_order: bool
    handled: set[tuple[str, int]] = field(default_factory=set)
    last: dict[str, int] = field(default_factory=dict)
    repeats: int = 0
    #: Messages handled twice, but not marked as redelivered the second time.
    unmarked: list[str] = field(default_factory=list)
    #: Messages handled before an earlier one of their key.
    early: list[str] = field(default_factory=list)

    def note(self, key: str, sequence: int, redelivered: bool) -> None:
        """Record a handled message, and any violation by it.

        The order may jump back to redelivered messages; from there it continues without a gap.
        """
        message = (key, sequence)
        if message in self.handled:
            self.repeats += 1
            if not redelivered:
                self.unmarked.append(f"{message} came again and was not marked as redelivered")
        self.handled.add(message)
        last = self.last.get(key, -1)
        if self.in_order and sequence > last + 1:
            self.early.append(f"{message} came after {last}")
        self.last[key] = sequence

    @property
    def faults(self) -> list[str]:
        """The violations, none of which may occur even when members are killed."""
        return self.unmarked + self.early


@dataclass
class Report:
    """The result of a load."""

    messages: int
    kills: int
    joins: int
    leaves: int
    ledgers: dict[str, Ledger]
    left: dict[str, int]

    @property
    def holds(self) -> bool:
        """Whether all promises were kept."""
        return all(
            len(ledger.handled) == self.messages and not ledger.faults and self.left[cluster] == 0
            for cluster, ledger in self.ledgers.items()
        )

    def lines(self) -> Iterator[str]:
        """Yield the report as text."""
        yield (
            f"{self.messages:,} messages to {len(self.ledgers)} clusters of {MEMBERS} members: "
            f"{self.kills} members killed, {self.joins} joined, {self.leaves} left"
        )
        for cluster, ledger in self.ledgers.items():
            missing = self.messages - len(ledger.handled)
            kind = "in order by key" if ledger.in_order else "shared"
            yield (
                f"  {cluster} ({kind}): handled {len(ledger.handled):,}, missing {missing}, "
                f"repeats {ledger.repeats}, of them unmarked {len(ledger.unmarked)}, "
                f"out of order {len(ledger.early)}, "
                f"left in its queues {self.left[cluster]}"
            )
            yield from (f"    {fault}" for fault in ledger.faults[:5])


class Crew:
    """The member processes of all clusters, and the ledgers of their output."""

    def __init__(self, uri: str, topic: str) -> None:
        self.uri = uri
        self.topic = topic
        self.ledgers = {name: Ledger(partitions > 0) for name, partitions in CLUSTERS.items()}
        self.members: dict[str, dict[str, subprocess.Popen[bytes]]] = {c: {} for c in CLUSTERS}
        #: The clusters with members that took the lowest free number instead of a fixed one.
        self.mixed: set[str] = set()
        self._joined = 0
        self._grown = threading.Condition()
        source, self._sink = os.pipe()
        self._reader = threading.Thread(target=self._read, args=(source,), daemon=True)
        self._reader.start()

    def _read(self, source: int) -> None:
        """Record the lines of all members until the last one has ended."""
        with os.fdopen(source, "r") as lines:
            for line in lines:
                with self._grown:
                    self._note(line.split())
                    self._grown.notify_all()

    def _note(self, words: list[str]) -> None:
        """Record a line."""
        if words[0] == "joined":
            self._joined += 1
        else:
            cluster, key, sequence, redelivered = words
            self.ledgers[cluster].note(key, int(sequence), redelivered == "1")

    @property
    def handled(self) -> int:
        """The number of messages handled by all clusters, without repeats."""
        return sum(len(ledger.handled) for ledger in self.ledgers.values())

    def wait_until(self, reached: Callable[[], bool]) -> None:
        """Wait until `reached`.  Raises: LoadError if nothing happens for too long."""
        with self._grown:
            while not reached():
                before = (self.handled, self._joined)
                if not self._grown.wait(SECONDS_MAX) and before == (self.handled, self._joined):
                    raise LoadError(f"nothing was handled for {SECONDS_MAX:.0f} s: {before}")

    def add(self, cluster: str, name: str, number: str) -> None:
        """Start a member, and wait until it has joined."""
        before = self._joined
        arguments = [self.uri, self.topic, cluster, str(CLUSTERS[cluster]), number]
        self.members[cluster][name] = subprocess.Popen(
            [sys.executable, str(PROGRAM), *arguments], stdout=self._sink
        )
        self.wait_until(lambda: self._joined > before)

    def kill(self, cluster: str, name: str) -> None:
        """Kill a member by SIGKILL."""
        process = self.members[cluster].pop(name)
        process.kill()
        process.wait()

    def leave(self, cluster: str, name: str) -> None:
        """Have a member leave.  Raises: LoadError when it fails."""
        process = self.members[cluster].pop(name)
        process.send_signal(signal.SIGTERM)
        if code := process.wait(SECONDS_MAX):
            raise LoadError(f"a member of {cluster} ended with {code}")

    def leave_all(self) -> None:
        """Have all members leave."""
        for cluster, members in self.members.items():
            for name in list(members):
                self.leave(cluster, name)

    def close(self) -> None:
        """Kill what still runs, and read to the end."""
        for cluster, members in self.members.items():
            for name in list(members):
                self.kill(cluster, name)
        os.close(self._sink)
        self._reader.join()


@contextmanager
def crew_of(uri: str, topic: str) -> Iterator[Crew]:
    """Yield a crew; no process outlives it."""
    crew = Crew(uri, topic)
    try:
        yield crew
    finally:
        crew.close()


def run(
    uri: str, topic: str, messages: int, kills: int, seed: int, say: Callable[[str], None]
) -> Report:
    """Deliver messages while members are killed and added; return the report.

    A killed member returns with the same number; every third time another one joins in addition,
    and an earlier one leaves.

    Raises: LoadError.
    """
    dice = random.Random(seed)
    report = Report(messages, 0, 0, 0, {}, {})
    with crew_of(uri, topic) as crew:
        report.ledgers = crew.ledgers
        for cluster in CLUSTERS:
            for number in range(MEMBERS):
                crew.add(cluster, str(number), str(number))
        with ThreadPoolExecutor(1) as thread:
            delivering = thread.submit(deliver, uri, topic, messages)
            share = messages * len(CLUSTERS) / kills
            for step in range(kills):
                goal = int((step + dice.random()) * share)
                crew.wait_until(lambda goal=goal: crew.handled >= goal)  # type: ignore[misc]  # bound now
                disturb(crew, report, dice, step)
                say(f"kill {step + 1} of {kills}: {crew.handled:,} handled")
            delivering.result()
        crew.wait_until(lambda: crew.handled == messages * len(CLUSTERS))
        crew.leave_all()
    report.left = {cluster: left_of(uri, topic, cluster) for cluster in CLUSTERS}
    return report


def deliver(uri: str, topic: str, messages: int) -> None:
    """Deliver the messages: message n is number n // KEYS of its key.

    Raises: LoadError if one is not confirmed.
    """
    with BlockingProducer(topic, uri=uri) as producer:
        acknowledgements = producer.deliver_many(
            (b"%d" % (number // KEYS), f"key-{number % KEYS}") for number in range(messages)
        )
    bad = [one for one in acknowledgements if not one.is_confirmed]
    if bad:
        raise LoadError(f"{len(bad)} messages were not confirmed: {bad[0]}")


def disturb(crew: Crew, report: Report, dice: random.Random, step: int) -> None:
    """Kill a member and restart it; every third time another joins, and one leaves."""
    cluster = dice.choice(list(CLUSTERS))
    members = crew.members[cluster]
    killed = dice.choice([name for name in members if not name.startswith("extra")])
    crew.kill(cluster, killed)
    report.kills += 1
    if step % 3 < 2:
        # With the same number, unless another one may have taken it.
        crew.add(cluster, killed, "-" if cluster in crew.mixed else killed)
        report.joins += 1
        return
    crew.mixed.add(cluster)
    for name in [name for name in members if name.startswith("extra")]:
        crew.leave(cluster, name)
        report.leaves += 1
    for name in (f"extra-{step}", killed):
        crew.add(cluster, name, "-")
        report.joins += 1


def left_of(uri: str, topic: str, cluster: str) -> int:
    """Return how many messages are left in a cluster's queues, and delete it."""

    def nothing(message: ClusterMessage) -> None:
        """Ack it."""

    member = BlockingConsumer(
        topic, cluster=cluster, on_message=nothing, uri=uri, partitions=CLUSTERS[cluster]
    )
    return member.delete_cluster()
