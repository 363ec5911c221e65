"""The table of the scoreboard, and what counts as broken."""

from __future__ import annotations

from dataclasses import replace

from chaos.board import Row, skipped, table

GOOD = Row("kills", 10, 10, 12_345, 0, 0, 0, 0, note="quick")


def test_what_holds() -> None:
    assert GOOD.holds
    assert skipped("cuts", "no loop").holds
    for broken in (
        replace(GOOD, boots=9),
        replace(GOOD, lost=1),
        replace(GOOD, phantom=1),
        replace(GOOD, altered=1),
        replace(GOOD, violations=1),
        replace(GOOD, runs=0, boots=0),
    ):
        assert not broken.holds
        assert replace(broken, compared=True).holds


def test_the_table() -> None:
    rows = [GOOD, replace(GOOD, name="cuts", lost=2), skipped("faults", "no strace")]
    assert table([*rows, replace(GOOD, name="RabbitMQ", lost=3, compared=True)]).splitlines() == [
        "          runs  boots  confirmed  lost  phantom  altered  violations",
        "kills       10     10     12,345     0        0        0           0  holds: quick",
        "cuts        10     10     12,345     2        0        0           0  BROKEN: quick",
        "faults       -      -          -     -        -        -           -  skipped: no strace",
        "RabbitMQ    10     10     12,345     3        0        0           0  compared: quick",
        "",
        "20 runs, 24,690 confirmed; BROKEN: cuts; skipped: faults",
    ]
