"""Requests do their work in slices: one in every second turn of the loop, and users take turns."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import pairwise
from pathlib import Path

import leveret.management
from leveret.management.requests.slices import Slices, next_slice


class Turns:
    """Counts the turns of the loop, and in which of them somebody had a slice."""

    def __init__(self) -> None:
        self.number = 0
        self.had: list[tuple[int, str]] = []
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._core)

    def _core(self) -> None:
        self.number += 1
        self._loop.call_soon(self._core)


async def work(slices: Slices, turns: Turns, user: str, count: int) -> None:
    """Have so many slices as a user."""
    with slices.of(user):
        for _ in range(count):
            await next_slice()
            turns.had.append((turns.number, user))


async def begun(slices: Slices, turns: Turns, requests: str, count: int) -> None:
    """Do the work of requests, of users with names of one letter."""
    await asyncio.gather(*(work(slices, turns, user, count) for user in requests))


def test_all_requests_have_one_slice_in_every_second_turn_of_the_loop() -> None:
    async def scene() -> None:
        slices, turns = Slices(), Turns()
        await begun(slices, turns, "m" * 64, 10)
        assert len(turns.had) == slices.count == 640
        # Others are served in the turns between; there is nobody else here.
        gaps = {after - before for (before, _), (after, _) in pairwise(turns.had)}
        assert gaps <= {2, 3}

    asyncio.run(scene())


def test_a_user_with_many_requests_has_no_more_of_the_loop_than_one_with_a_single_one() -> None:
    async def scene() -> None:
        slices, turns = Slices(), Turns()
        await begun(slices, turns, "m" * 30 + "n", 10)
        users = [user for _, user in turns.had]
        last = len(users) - users[::-1].index("n")
        assert users[:last].count("n") == 10
        assert users[:last].count("m") <= 12

    asyncio.run(scene())


def test_a_request_that_ends_while_it_waits_keeps_nobody_waiting() -> None:
    async def scene() -> None:
        slices, turns = Slices(), Turns()
        ending = [asyncio.ensure_future(work(slices, turns, "m", 5)) for _ in range(5)]
        going_on = asyncio.ensure_future(work(slices, turns, "n", 5))
        await asyncio.sleep(0)
        for one in ending:
            one.cancel()
        await going_on
        for one in ending:
            with contextlib.suppress(asyncio.CancelledError):
                await one
        assert [user for _, user in turns.had].count("n") == 5
        # And the next one finds the loop free.
        await work(slices, turns, "m", 1)

    asyncio.run(scene())


def test_whatever_works_in_slices_takes_turns_with_the_others() -> None:
    """Who gives way to the loop alone takes a slice in each of its turns, beside the others."""
    room = Path(leveret.management.__file__).parent
    giving_way = [path.name for path in room.rglob("*.py") if "sleep(0)" in path.read_text()]
    assert giving_way == ["slices.py"]
