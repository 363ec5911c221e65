"""SIGKILL while the model works: dead letters, counts, windows, definitions, transactions.

Each test works with a real broker, kills it at moments that its seed chooses, starts it on the same
directory, and asks for what was promised.  Where it says so, the journal is so short that
checkpoints run all the time.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.crash import letter_load
from support.crash.kill_load import run_until
from support.crash.ledger import Ledger
from support.crash.letter_book import REASONS, LetterBook

#: A journal of 64 KiB: a checkpoint about every 100 messages.
SHORT = {"journal_bytes_max": "65536"}


@pytest.fixture(autouse=True)
def own_broker() -> None:
    """These tests start processes of their own."""
    need_own_broker()


# -- dead letters ----------------------------------------------------------------------------------

#: All else that a queue may be asked for, beside its limits.
ALL = {
    "x-dead-letter-strategy": "at-least-once",
    "x-max-priority": 3,
    "x-deduplication-header": "n",
    "x-retain-acked-bytes": 100_000,
}
LETTER_RUNS = [(1, {}, {}), (2, SHORT, {}), (3, SHORT, ALL)]


def work_and_kill(broker: BrokerProcess, book: LetterBook, chance: random.Random) -> None:
    """Fill and take until so many confirms and deliveries came, then kill and hear the rest."""
    clients = [
        letter_load.Filler(broker.uri, book, chance.getrandbits(32)),
        letter_load.Worker(broker.uri, book, chance.getrandbits(32)),
    ]
    end = book.events + chance.randrange(100, 400)
    run_until(clients, lambda: book.events >= end)
    broker.kill()
    book.ledger.note("K", str(book.events))
    for client in clients:
        client.drain()


@pytest.mark.parametrize(
    ("seed", "settings", "arguments"), LETTER_RUNS, ids=["long", "short", "all"]
)
def test_dead_letters(
    tmp_path: Path, seed: int, settings: dict[str, str], arguments: dict[str, object]
) -> None:
    """Each confirmed message is in its queue or died once, and its count is what was synced."""
    chance = random.Random(seed)
    checkpoints = 0
    with (
        Ledger(tmp_path / "ledger") as ledger,
        BrokerProcess(tmp_path / "data", settings=settings) as broker,
    ):
        book = LetterBook(seed, ledger, in_order="x-max-priority" not in arguments)
        letter_load.declare(broker.uri, **arguments)
        for number in range(4):
            work_and_kill(broker, book, chance)
            checkpoints += broker.output.count("checkpoint")
            broker.start()
            if number == 1:
                broker.crash()
            letter_load.judge(broker.uri, book)
            letter_load.bury(broker.uri, book, number)
        broker.restart()
        letter_load.judge(broker.uri, book)
        assert broker.terminate() == 0
    assert set(book.reasons) == set(REASONS)
    assert not settings or checkpoints >= 3
