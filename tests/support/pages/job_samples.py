"""Sample results of the Spark jobs, made without Spark, for their pages; with hostile names."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from leveret.pipelines.archive.result import ArchiveResult, Batch, Measured
from leveret.pipelines.deadletter.result import DeadLetterGroup, DeadLetters, Letter
from leveret.pipelines.lakes import TableSize
from leveret.pipelines.lifecycle.result import STAGES, Latency, Lifecycle, QueueLife, Stuck
from leveret.pipelines.pages.bars import BANDS_MAX, Bar
from leveret.pipelines.replay.sending import Sent, Step
from leveret.pipelines.report.result import Report, TrafficRow
from leveret.pipelines.route.result import BindingLoad, QueueLoad, ReroutedKey, Routes, Unroutable
from leveret.pipelines.route.topology import RecordedBinding

START: Final = datetime(2026, 11, 23, 8, 0, tzinfo=UTC)

#: Markup that would end a script, a sign that turns the text around, a line feed, and a long word.
HOSTILE: Final = '</script><img src=x onerror="throw 1">\u202eevil\n\x00' + "w" * 200


def bars(count: int) -> tuple[Bar, ...]:
    """Bars of a minute each, with every rank in each."""
    return tuple(
        Bar(START + timedelta(minutes=minute), rank, 10 + (minute * (rank + 3)) % 97)
        for minute in range(count)
        for rank in range(BANDS_MAX + 1)
    )


def report_sample(rows: int = 2400, hostile: str = HOSTILE) -> Report:
    """Traffic of twelve keys, with more rows than a page holds."""
    keys = tuple(
        TrafficRow(
            None, "shop" if n else "", hostile if n == 3 else f"orders.region{n}",
            90_000 // (n + 1), 10_000_000 // (n + 1), 210, 1900,
            *((4, 55) if n % 3 else (None, None)),
        )
        for n in range(12)
    )  # fmt: skip
    windows = tuple(
        TrafficRow(
            START + timedelta(minutes=n // 12), "shop", keys[n % 12].routing_key,
            1 + n * 7 % 900, n * 1009, 200, 1800,
        )
        for n in range(rows)
    )  # fmt: skip
    return Report(
        "stream orders", 60, 1_234_567, 987_654_321, windows, rows + 600, keys, 61, bars(90), 60
    )


def route_sample() -> Routes:
    """A topology of three exchanges and sixteen queues, two of which get nothing."""
    queues = tuple(
        QueueLoad(
            HOSTILE if n == 2 else f"work.region{n}", 52_000 // (n + 1) if n < 14 else 0,
            10**8 // (n + 1), 40_000 // (n + 1), n == 0,
        )
        for n in range(16)
    )  # fmt: skip
    arguments = {"x-match": "all", "region": "north"}
    loads = [
        BindingLoad(
            RecordedBinding(
                "shop", queue.queue, True, f"orders.{n}.#", arguments if n == 5 else {}
            ),
            queue.messages,
        )
        for n, queue in enumerate(queues)
    ]
    loads += [
        BindingLoad(RecordedBinding("ingress", "shop", False, "orders.#"), 90_000),
        BindingLoad(RecordedBinding("shop", "audit", False, "#"), 90_000),
        BindingLoad(RecordedBinding("audit", queues[1].queue, True, ""), 26_000),
    ]
    loads.sort(key=lambda load: -load.messages)
    return Routes(
        "stream orders", "plan.json", "now.json", 120_000, 5 * 10**8, 340, queues, tuple(loads),
        (
            Unroutable("shop", HOSTILE, "no binding matches", 800),
            Unroutable("shop", "orders.nowhere", "no binding matches", 220),
        ),
        2, 1020,
        (ReroutedKey("shop", "orders.1.new", 500, ("work.region1",), ("work.region0", HOSTILE)),),
        1, 500, START, START + timedelta(hours=3),
    )  # fmt: skip


def deadletter_sample() -> DeadLetters:
    """Dead letters of seven queues, with four reasons."""

    def letter(number: int, body: str) -> Letter:
        died_at = START + timedelta(minutes=number)
        error = f"no such order: {number}"
        return Letter("letters", number, "shop", "orders.new", died_at, 1 + number % 3, error, body)

    reasons = ("rejected", "expired", "maxlen", "delivery_limit")
    kinds = ("no such order: <n>", "timeout after <n> ms", "", HOSTILE, "refused by <text>")
    groups = tuple(
        DeadLetterGroup(
            reasons[n % 4], HOSTILE if n == 5 else f"work.region{n % 7}", f"{n:012x}", kinds[n % 5],
            900 // (n + 1), 40_000, letter(n, "{}"),
            letter(n + 40, HOSTILE if n == 1 else '{"order": 17, "items": [1, 2, 3]}'),
        )
        for n in range(26)
    )  # fmt: skip
    ends = tuple((group.queue, group.reason) for group in groups[:BANDS_MAX])
    letters = sum(group.letters for group in groups)
    return DeadLetters("stream letters", letters, 123_456, 12, groups, 31, ends, bars(60), 60)


def lifecycle_sample() -> Lifecycle:
    """The lifecycles of messages in two dozen queues; many messages are stuck."""

    def latency(messages: int, half: int) -> Latency:
        return Latency(messages, half, half * 4, half * 9, half * 30)

    def life(n: int) -> QueueLife:
        count = 48_000 // (n + 1)
        acked, dead, expired, dropped, cleared = (
            count * share // 1000 for share in (800, 50, 20, 5, 10)
        )
        open_ = count - acked - dead - expired - dropped - cleared
        halves = dict(zip(STAGES, (3 + n, 400 + 37 * n, 20 + n % 5, 430 + 38 * n), strict=True))
        return QueueLife(
            "/", HOSTILE if n == 4 else f"work.region{n}", count,
            acked, dead, expired, dropped, cleared, open_,
            count // 60, count // 300, count // 500,
            {stage: latency(count, half) for stage, half in halves.items()} if n != 2 else {},
            (900_000 + n) if n % 3 == 2 else None,
        )  # fmt: skip

    queues = tuple(life(n) for n in range(24))
    stuck = tuple(
        Stuck(
            "/", f"work.region{n % 9}", n, "shop", HOSTILE if n == 2 else "orders.new", None,
            "delivered", START + timedelta(seconds=n),
        )
        for n in range(900)
    )  # fmt: skip
    return Lifecycle(
        "stream amq.leveret.events", 812_345, 2, 190_000, 77, queues, 24,
        sum(queue.messages for queue in queues), stuck, 4300, START, START + timedelta(hours=5),
    )  # fmt: skip


def archive_sample() -> ArchiveResult:
    """A run of forty batches over three streams."""
    batches = tuple(
        Batch(n, START + timedelta(seconds=n * 12), 3 + n % 7, 80_000 + 977 * (n % 11))
        for n in range(40)
    )
    ends = {"orders": 2_400_000, "payments": 700_000, HOSTILE: 90_000}
    began = {"orders": 120_000, "payments": 0}
    records = sum(batch.records for batch in batches)
    measured = Measured(TableSize(412, 9 * 10**9), TableSize(40, 400_000_000), START)
    return ArchiveResult(
        "/data/archive/shop", ", ".join(ends), records, 40, None, ends, began, batches,
        1_480_000_000, {"orders": 1200, "payments": 0, HOSTILE: 34}, measured,
    )  # fmt: skip


def replay_sample() -> Sent:
    """A run of thirty steps over two streams; the broker already had the first ones."""
    steps = tuple(
        Step(
            HOSTILE if n % 2 else "orders", n * 1000, n * 1000 + 1000, 900, 900 if n < 4 else 0,
            n % 3, START + timedelta(seconds=n), START + timedelta(seconds=n + 1),
        )
        for n in range(30)
    )  # fmt: skip
    known = sum(step.known for step in steps)
    lost = sum(step.unroutable for step in steps)
    ends = {"orders": 29_000, HOSTILE: 30_000}
    return Sent("replay-0123456789abcdef", 27_000, ends, known, lost, steps, 30)
