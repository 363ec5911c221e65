"""Sessions with changed bytes: a fixed few hundred of what `make chaos` sends a million of."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from chaos.mutations import SETTINGS, Score, Worker, mutated, sessions

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker

SESSIONS = 300


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker process with the settings of the full run."""
    need_own_broker()
    with BrokerProcess(tmp_path_factory.mktemp("data"), settings=SETTINGS) as running:
        yield running


def worker(broker: BrokerProcess, seed: int, runs: int) -> Worker:
    """Who sends sessions to the broker; it is not started."""
    http = int(broker.expect_line("listening on http://").rsplit(":", 1)[1])
    return Worker((broker.port, http), seed, runs, Score())


def test_sessions_without_a_change_go_through_whole(broker: BrokerProcess) -> None:
    """Else most mutations would be tried behind an error that each session has."""
    one = worker(broker, 0, 0)
    for frames in sessions():
        one.send(broker.port, b"".join(frames))
    assert one.score.answers == {"close-ok": len(sessions())}
    assert one.score.problems == []


def test_a_seed_gives_the_same_mutations() -> None:
    whole = sessions()
    chances = random.Random(7), random.Random(7)
    first, again = ([mutated(chance, whole) for _ in range(9)] for chance in chances)
    assert first == again
    assert len({*first}) > 1


def test_mutated_sessions_are_answered_well_formed_and_ended(broker: BrokerProcess) -> None:
    one = worker(broker, 1, SESSIONS)
    one.run()
    assert one.score.problems == []
    assert one.score.sessions == SESSIONS
    # Many depths of the protocol were reached, and HTTP too.
    assert {"501", "502", "503", "504", "505", "close-ok", "HTTP 400", "HTTP 401"} <= {
        *one.score.answers
    }
    assert broker.terminate() == 0
