"""Measure what the journal costs in process: nanoseconds per publish, per ack, and the seal.

Run it from outside the source tree with the build to be measured:

    .venv/bin/python bench/journal_append.py
"""

from __future__ import annotations

import time
from collections.abc import Callable

from leveret.limits import UNSYNCED_BYTES_MAX
from leveret.message import Address, Message
from leveret.store.journal.journal import Journal
from leveret.wire.buffer import COMPILED

ROUNDS = 200_000


def best_ns(run: Callable[[], int]) -> float:
    """Return the nanoseconds per step of the best of five runs; `run` returns its steps."""
    figures = []
    for _ in range(5):
        start = time.perf_counter_ns()
        steps = run()
        figures.append((time.perf_counter_ns() - start) / steps)
    return min(figures)


def publishing(size: int) -> Callable[[], int]:
    """Return a run that publishes bodies of `size` bytes to one queue each, sealed now and then."""
    address = Address(b"", b"queue-1")
    message = Message(address, b"\x10\x00\x02", b"x" * size, 1_700_000_000_000, persistent=True)
    rounds = max(500, min(ROUNDS, 50_000_000 // max(size, 1)))

    def run() -> int:
        journal = Journal(seed=77)
        target, publish = journal.target, journal.publish
        for sequence in range(rounds):
            target(1, sequence)
            publish(message)
            if journal.unsynced_bytes >= UNSYNCED_BYTES_MAX:
                seal(journal)
        seal(journal)
        return rounds

    return run


def acking(step: int) -> Callable[[], int]:
    """Return a run that acks one message at a time; with a step of 1 they merge into a run."""

    def run() -> int:
        journal = Journal(seed=77)
        ack = journal.ack
        for sequence in range(0, ROUNDS * step, step):
            ack(1, sequence, sequence)
        seal(journal)
        return ROUNDS

    return run


def seal(journal: Journal) -> None:
    """Seal the group and call it durable."""
    group = journal.seal()
    if group is not None:
        journal.synced(group.number)


def nothing() -> int:
    """Cost of the loop itself with two method calls, to be taken off."""
    journal = Journal(seed=77)
    has_records = journal.has_records
    for _ in range(ROUNDS):
        has_records()
    return ROUNDS


def main() -> None:
    """Print the figures."""
    print(f"build: {'compiled' if COMPILED else 'pure'}")
    call = best_ns(nothing)
    print(f"a call from the interpreter, included below once per verb: {call:.0f} ns")
    for size in (16, 100, 1000, 1024, 4096, 65_536, 1_048_576):
        print(f"publish, one target, body of {size} B: {best_ns(publishing(size)):.0f} ns")
    print(f"ack that continues a run: {best_ns(acking(1)):.0f} ns")
    print(f"ack that starts a run: {best_ns(acking(2)):.0f} ns")


if __name__ == "__main__":
    main()
