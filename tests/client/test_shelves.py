"""What pools share: places, idle connections and who waits, by address."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.client import Closed, PoolExhausted
from leveret.client.shell.shelves import Key, Shelves
from leveret.client.uri import parse_uri

KEY: Key = (parse_uri("amqp://u:hush@one"),)
OTHER: Key = (parse_uri("amqp://two"),)


class Asker(Future[Any]):
    """A caller; `came` is the connection it got, None for a place, or its error's class."""

    @property
    def came(self) -> list[Any]:
        if not self.done():
            return []
        if (error := self.exception()) is not None:
            return [type(error)]
        idle = self.result()
        return [idle.connection if idle is not None else None]


def made(size: int = 2, waiters_max: int = 10) -> Shelves[str]:
    """Return empty shelves whose connections expire after 100 s."""
    return Shelves(size, 100, waiters_max)


def ask(shelves: Shelves[str], key: Key = KEY) -> Asker:
    """Ask once."""
    asker = Asker()
    shelves.ask(key, asker)
    return asker


def test_so_many_places_are_given_as_the_pool_is_large() -> None:
    shelves = made()
    askers = [ask(shelves) for _ in range(3)]
    assert [one.came for one in askers] == [[None], [None], []]
    assert ask(shelves, OTHER).came == [None]
    assert (shelves.lent_count, shelves.waiting_count) == (3, 1)


def test_who_asked_first_is_served_first() -> None:
    shelves = made(size=1)
    ask(shelves)
    askers = [ask(shelves) for _ in range(3)]
    assert shelves.give_back(KEY, "a", 0)
    assert [one.came for one in askers] == [["a"], [], []]
    shelves.give_up(KEY)  # it ended: the next one opens its own
    assert [one.came for one in askers] == [["a"], [None], []]


def test_the_connection_used_last_is_lent_first() -> None:
    shelves = made()
    ask(shelves)
    ask(shelves)
    shelves.give_back(KEY, "a", 1)
    shelves.give_back(KEY, "b", 2)
    assert ask(shelves).came == ["b"]


def test_who_withdraws_is_not_served() -> None:
    shelves = made(size=1)
    ask(shelves)
    gone, here = ask(shelves), ask(shelves)
    assert shelves.withdraw(KEY, gone)
    assert not shelves.withdraw(KEY, gone)
    shelves.give_back(KEY, "a", 0)
    assert (gone.came, here.came) == ([], ["a"])
    assert not shelves.withdraw(KEY, here)


def test_waiters_are_limited() -> None:
    shelves = made(size=1, waiters_max=1)
    ask(shelves)
    ask(shelves)
    with pytest.raises(PoolExhausted, match="1 callers already wait") as error:
        ask(shelves)
    assert "hush" not in str(error.value)
    assert ask(shelves, OTHER).came == [None]


def test_what_nobody_uses_expires() -> None:
    shelves = made()
    ask(shelves)
    ask(shelves)
    shelves.give_back(KEY, "a", 0)
    shelves.give_back(KEY, "b", 50)
    assert shelves.take_expired(99.9) == []
    assert shelves.take_expired(100) == ["a"]
    assert shelves.idle_count == 1
    assert shelves.take_expired(150) == ["b"]
    assert shelves.lent_count + shelves.idle_count == 0


def test_a_dead_connection_is_exchanged_for_an_idle_one() -> None:
    shelves = made()
    ask(shelves)
    assert shelves.another(KEY) is None
    ask(shelves)
    shelves.give_back(KEY, "b", 0)
    found = shelves.another(KEY)
    assert found is not None
    assert found.connection == "b"
    assert (shelves.lent_count, shelves.idle_count) == (1, 0)


def test_the_end_gives_the_idle_ones_and_refuses_the_others() -> None:
    shelves = made()
    ask(shelves)
    ask(shelves)
    waiting = ask(shelves)
    ask(shelves, OTHER)
    shelves.give_back(OTHER, "o", 0)
    assert shelves.close() == ["o"]
    assert waiting.came == [Closed]
    with pytest.raises(Closed):
        ask(shelves)
    assert not shelves.give_back(KEY, "a", 0)
    shelves.give_up(KEY)
    assert shelves.lent_count == 0
    assert shelves.close() == []


@pytest.mark.parametrize("size", [0, -1])
def test_a_pool_without_connections_is_a_mistake(size: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        made(size)


@given(st.lists(st.sampled_from(["ask", "back", "up", "withdraw", "expire"]), max_size=60))
def test_no_place_is_lost_and_nobody_waits_in_vain(steps: list[str]) -> None:
    shelves = made(size=3, waiters_max=100)
    askers: list[Asker] = []
    held: list[str] = []
    taken: set[int] = set()
    opened = 0
    for now, step in enumerate(steps):
        if step == "ask":
            askers.append(ask(shelves))
        elif step == "back" and held:
            assert shelves.give_back(KEY, held.pop(0), now)
        elif step == "up" and held:
            held.pop()
            shelves.give_up(KEY)
        elif step == "withdraw" and askers:
            shelves.withdraw(KEY, askers[-1])
        elif step == "expire":
            shelves.take_expired(now)
        for index, asker in enumerate(askers):
            if asker.came and index not in taken:
                taken.add(index)
                (came,) = asker.came
                opened += came is None
                held.append(came or f"c{opened}")
        assert len(set(held)) == len(held) == shelves.lent_count
        assert shelves.lent_count + shelves.idle_count <= 3
        if shelves.waiting_count:
            assert (shelves.idle_count, shelves.lent_count) == (0, 3)
