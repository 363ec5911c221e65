"""The script of `chaos/syscalls.py` on a broker that is left alone: its model is right."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from chaos.script import Script, found

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker

#: As short as it is there: the script makes several checkpoints.
SETTINGS = {"journal_bytes_max": "65536", "journal_file_bytes": "65536"}


@pytest.fixture(autouse=True)
def own_broker() -> None:
    """These tests start processes of their own."""
    need_own_broker()


@pytest.mark.parametrize("restart", [None, BrokerProcess.restart, BrokerProcess.crash])
def test_the_model(
    tmp_path: Path, restart: Callable[[BrokerProcess], BrokerProcess] | None
) -> None:
    with BrokerProcess(tmp_path, settings=SETTINGS) as broker:
        script = Script(7, 200)
        script.play(broker.uri)
        assert script.complete
        assert script.promised == len(script.states) - 1
        assert broker.output.count("checkpoint") > 1
        if restart is not None:
            restart(broker)
        assert found(broker.uri) == script.state
