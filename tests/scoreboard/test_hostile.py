"""The judges of `chaos/hostile.py` see what they are there to see: each fault is planted once."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

from leveret.broker.sinks.area import area_of
from support.hostile.hostile_node import HostileNode, Tally, difference, durable, exported
from support.hostile.hostile_requests import Request
from support.hostile.hostile_values import spread

#: Nothing is there, so that a request for it is refused.
ROUTE = ("PUT", "/api/user-limits/{user}")
PATH = b"/api/user-limits/nobody"


def asked(directory: Path, plant: Callable[[HostileNode], bytes | None]) -> Tally:
    """What is counted for a refused request, while whose body is made something else happens."""
    tally = Tally()

    async def run() -> None:
        hostile = HostileNode(directory, tally)
        async with hostile.serving():
            request = Request(ROUTE, PATH, lambda: plant(hostile), "planted")
            await hostile.ask(request, False)

    asyncio.run(run())
    assert (tally.cases, tally.refused) == (1, 1)
    return tally


def test_a_refusal_that_changes_nothing_is_no_fault(tmp_path: Path) -> None:
    tally = asked(tmp_path, lambda _hostile: b"{}")
    assert not tally.faults


def test_a_change_that_is_not_journaled_is_seen(tmp_path: Path) -> None:
    def plant(hostile: HostileNode) -> bytes:
        hostile.node.broker.users.limits["u"] = {"max-channels": 7}
        return b"{}"

    tally = asked(tmp_path, plant)
    assert tally.differences == 1
    assert "something changed" in tally.faults[0]


def test_a_record_of_what_is_there_already_is_seen(tmp_path: Path) -> None:
    def plant(hostile: HostileNode) -> bytes:
        broker = hostile.node.broker
        hostile.node.journal.define("user", broker.users.get("u").definition())
        return b"{}"

    tally = asked(tmp_path, plant)
    assert tally.differences == 1
    assert "something was journaled" in tally.faults[0]


def survived(directory: Path, change: Callable[[HostileNode], object]) -> Tally:
    """What is counted after restarts of a broker that was changed behind the journal's back."""
    tally = Tally()
    hostile = HostileNode(directory, tally)
    hostile.node.sync()
    change(hostile)
    hostile.survives("planted")
    return tally


def test_a_broker_that_keeps_all_is_no_fault(tmp_path: Path) -> None:
    tally = survived(tmp_path, lambda _hostile: None)
    assert not tally.faults
    assert tally.restarts > 0


def test_what_only_the_memory_has_is_missed(tmp_path: Path) -> None:
    def change(hostile: HostileNode) -> None:
        hostile.node.broker.users.limits["u"] = {"max-channels": 7}

    tally = survived(tmp_path, change)
    assert tally.differences > 0
    assert any("journal" in fault for fault in tally.faults)


def test_what_no_checkpoint_can_write_is_seen(tmp_path: Path) -> None:
    def change(hostile: HostileNode) -> None:
        hostile.node.broker.users.limits["u"] = {"max-channels": 10**20}

    assert survived(tmp_path, change).failures == 1


def test_a_message_that_is_gone_is_missed(tmp_path: Path) -> None:
    def change(hostile: HostileNode) -> None:
        area_of(hostile.node.broker.vhosts["h"]).sinks.by_place.clear()

    assert survived(tmp_path, change).differences > 0


def test_rows_are_compared_with_their_number(tmp_path: Path) -> None:
    hostile = HostileNode(tmp_path, Tally())
    before = durable(exported(hostile.node))
    assert not difference(before, before)
    after = {**before, "users": before["users"] + before["users"][:1]}
    assert "users" in difference(before, after)


def test_each_group_has_its_share() -> None:
    chosen = spread(random.Random(1), [["a"] * 100, ["b"], ["c"] * 5], 12)
    assert {letter: chosen.count(letter) for letter in "abc"} == {"a": 6, "b": 1, "c": 5}
