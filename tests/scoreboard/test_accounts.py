"""The checker is checked: each thing that a broker could do wrong is counted as what it is."""

from __future__ import annotations

import pytest
from chaos.accounts import Accounts, Counts, message

QUEUES = ("one", "two")
P = 3


def sent(accounts: Accounts, *queues: str, confirmed: bool = True) -> int:
    """Send a message and return its number."""
    number = accounts.tried(P, queues)
    if confirmed:
        accounts.confirmed(P, number, queues)
    return number


def deliver(
    accounts: Accounts, queue: str, number: int, *, redelivered: bool = False, damage: bytes = b""
) -> None:
    """Deliver a message to the same consumer as ever."""
    properties, body = message(P, number)
    if damage:
        body = body[: -len(damage)] + damage
    accounts.delivered("c", queue, properties, body, redelivered)


def take(accounts: Accounts, queue: str, number: int, *, redelivered: bool = False) -> None:
    """Deliver a message and ack it durably."""
    deliver(accounts, queue, number, redelivered=redelivered)
    accounts.leaving(queue, [(P, number)])
    accounts.gone(queue, [(P, number)])


@pytest.fixture
def accounts() -> Accounts:
    """Accounts of two queues, with a message in the first that was taken."""
    made = Accounts(QUEUES, Counts())
    take(made, "one", sent(made, "one"))
    return made


def test_all_is_well(accounts: Accounts) -> None:
    kept, tried = sent(accounts, "one"), sent(accounts, "one", confirmed=False)
    both = sent(accounts, *QUEUES)
    deliver(accounts, "one", kept)
    accounts.crashed()
    # The one that was not confirmed is not there; the one that was delivered comes again.
    take(accounts, "one", kept, redelivered=True)
    for queue in QUEUES:
        take(accounts, queue, both, redelivered=True)
    accounts.settle()
    counts = accounts.counts
    assert (counts.confirmed, counts.repeats, counts.faults) == (3, 1, [])
    assert (counts.lost, counts.phantom, counts.altered, counts.violations) == (0, 0, 0, 0)
    assert tried not in (kept, both)


def test_lost(accounts: Accounts) -> None:
    sent(accounts, *QUEUES)
    accounts.crashed()
    accounts.settle()
    assert accounts.counts.lost == 2


def test_an_unconfirmed_message_that_was_found_once_must_stay(accounts: Accounts) -> None:
    number = sent(accounts, "one", confirmed=False)
    accounts.crashed()
    deliver(accounts, "one", number, redelivered=True)
    accounts.crashed()
    accounts.settle()
    assert accounts.counts.lost == 1


def test_phantoms(accounts: Accounts) -> None:
    deliver(accounts, "one", 2)
    deliver(accounts, "two", 1)
    accounts.delivered("c", "one", b"\0\0", b"no name", False)
    assert (accounts.counts.phantom, accounts.counts.violations) == (3, 0)


def test_altered(accounts: Accounts) -> None:
    number = sent(accounts, "one")
    deliver(accounts, "one", number, damage=b"\0")
    _, body = message(P, number)
    accounts.delivered("c", "two", b"\0\0", body, False)
    accounts.delivered("d", "one", b"\0\0", body, True)
    assert (accounts.counts.altered, accounts.counts.phantom) == (2, 1)


def test_a_repeat_must_say_so(accounts: Accounts) -> None:
    number = sent(accounts, "one")
    deliver(accounts, "one", number)
    accounts.crashed()
    deliver(accounts, "one", number)
    assert (accounts.counts.unmarked, accounts.counts.violations) == (1, 1)


def test_back_after_a_durable_ack(accounts: Accounts) -> None:
    accounts.crashed()
    deliver(accounts, "one", 1, redelivered=True)
    assert accounts.counts.returned == 1
    accounts.settle()
    accounts.crashed()
    deliver(accounts, "one", 1, redelivered=True)
    assert (accounts.counts.returned, accounts.counts.phantom) == (2, 0)


def test_order(accounts: Accounts) -> None:
    first, second = sent(accounts, "one"), sent(accounts, "one")
    deliver(accounts, "one", second)
    deliver(accounts, "one", first)
    assert (accounts.counts.disorder, accounts.counts.violations) == (1, 1)


def test_torn(accounts: Accounts) -> None:
    """A message of two queues, not confirmed, is found in one of them only."""
    number = sent(accounts, *QUEUES, confirmed=False)
    accounts.crashed()
    deliver(accounts, "two", number, redelivered=True)
    accounts.settle()
    assert accounts.counts.torn == 1
