"""The loads that brokers, and builds of Leveret, are compared under, and the rounds that do it.

A figure is the median of the rounds.  Within a round the sides take turns scenario by scenario, so
that a change of the machine's mood meets all of them.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import sides


@dataclass(frozen=True)
class Scenario:
    """A load, given by the generator's flags, and the figure that counts."""

    name: str
    title: str
    flags: list[str]
    figure: str = "delivered"
    unit: str = "msg/s"
    target: float = 0.0  # the ratio to RabbitMQ that is to be reached, 0 where none is set
    perf: list[str] = field(default_factory=list)  # `leveret perf`'s flags for the same load
    latencies: bool = False  # whether p50, p99 and p99.9 are shown too
    relayed: bool = False  # whether the C relay, which has one queue and no disk, can do it
    counted: float = 0  # the share of `builds.py --instructions` that are counted here, 0 for none


ONE: Final = ["-P", "1", "-C", "1"]
ACKED: Final = ["-c", "1000", "-q", "1000", "-a", "100"]
CONFIRMED: Final = [*ONE, *ACKED]
PERF_CONFIRMED: Final = ["-c", "1000", "-q", "1000", "-A", "100"]

SCENARIOS: Final = [
    Scenario(
        "auto-ack", "16 B, auto-ack", [*ONE, "-s", "16"], target=12, perf=["-s", "16", "-a"],
        relayed=True,
    ),
    Scenario(
        "confirms", "16 B, confirms 1000, acks 100", [*CONFIRMED, "-s", "16"], target=15,
        perf=[*PERF_CONFIRMED, "-s", "16"], relayed=True, counted=1,
    ),
    Scenario(
        "durable", "16 B, durable, persistent, confirmed", [*CONFIRMED, "-d", "-s", "16"],
        target=10, perf=[*PERF_CONFIRMED, "-s", "16", "-f", "persistent"], counted=1,
    ),
    Scenario(
        "durable-16", "the same, 16 publishers on 16 queues",
        ["-P", "16", "-C", "16", "-M", "16", *ACKED, "-d", "-s", "16"], target=10, counted=2,
    ),
    Scenario(
        "durable-wait", "durable, each message waits for its confirm",
        [*ONE, "-c", "1", "-w", "-q", "1000", "-a", "100", "-d", "-s", "16"], figure="confirmed",
        latencies=True, target=1 / 0.6, counted=0.1,
    ),
    Scenario(
        "quorum", "16 B, quorum queue, persistent, confirmed",
        [*CONFIRMED, "-d", "-x", "quorum", "-s", "16"],
    ),
    Scenario(
        "fan-out", "16 B, fanout to 10 queues, auto-ack", ["-P", "1", "-C", "10", "-F", "10",
        "-s", "16"], unit="deliveries/s", target=8,
    ),
    Scenario(
        "topic", "16 B, topic with 1,000 wildcard bindings", [*ONE, "-T", "1000", "-s", "16"],
        target=5, counted=1,
    ),
    Scenario(
        "1k", "1 KiB, auto-ack", [*ONE, "-s", "1024"], perf=["-s", "1024", "-a"], relayed=True,
        counted=1,
    ),
    Scenario(
        "1k-durable", "1 KiB, durable, persistent, confirmed", [*CONFIRMED, "-d", "-s", "1024"],
    ),
    Scenario("16k", "16 KiB, auto-ack", [*ONE, "-s", "16384"]),
    Scenario("64k", "64 KiB, auto-ack", [*ONE, "-s", "65536"], relayed=True),
    Scenario("1m", "1 MiB, auto-ack", [*ONE, "-s", "1048576"]),
    Scenario(
        "latency", "latency at 10,000 msg/s", [*ONE, "-s", "16", "-l", "-r", "10000"],
        figure="p50", unit="µs", latencies=True, perf=["-s", "16", "-a", "-l", "-r", "10000"],
        relayed=True,
    ),
]  # fmt: skip

#: The figures of a scenario on one side: a value for each round.
Figures = dict[str, list[float]]
#: Puts the load of a scenario on a side, with a queue of that name for that many seconds.
Load = Callable[[Scenario, str, float], Mapping[str, float]]


def measure(
    loads: Mapping[str, Load], scenarios: Iterable[Scenario], rounds: int, seconds: float
) -> tuple[dict[str, dict[str, Figures]], list[str]]:
    """Return scenario → side → figure → one value for each round; and what failed.

    A load returns no figures if its side cannot run the scenario.
    """
    found: dict[str, dict[str, Figures]] = {one.name: {} for one in scenarios}
    failures: list[str] = []
    for round_ in range(rounds):
        # Who begins changes from round to round: it finds the machine as the last load left it.
        turns = [*loads.items()][:: -1 if round_ % 2 else 1]
        for scenario in (one for one in SCENARIOS if one.name in found):
            for name, load in turns:
                say(f"round {round_ + 1}/{rounds}: {scenario.title}: {name}")
                # A queue of its own: what a run left in sockets cannot come into the next.
                queue = f"bench-{secrets.token_hex(4)}"
                try:
                    got = load(scenario, queue, seconds)
                except sides.GeneratorError as error:
                    failures.append(f"round {round_ + 1}: {scenario.title}: {name}: {error}")
                    continue
                for figure, value in got.items():
                    of_side = found[scenario.name].setdefault(name, {})
                    of_side.setdefault(figure, []).append(value)
    return found, failures


def by_name(name: str) -> Scenario:
    """Return a scenario by its name."""
    return next(scenario for scenario in SCENARIOS if scenario.name == name)


def chosen(names: Sequence[str] | None) -> list[Scenario]:
    """Return the scenarios of these names; all for None."""
    return [one for one in SCENARIOS if names is None or one.name in names]


def say(text: str) -> None:
    """Show progress on standard error: standard output is the result's."""
    print(text, file=sys.stderr, flush=True)
