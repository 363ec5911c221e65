"""A broker whose address space ends refuses in time, and starts again under the same limit."""

from __future__ import annotations

from pathlib import Path

import pytest
from chaos.address_space import CONNECTIONS, idle_bytes, judged

#: Less room than in the scenario, so that it is filled soon.
ROOM_BYTES = 96 << 20


@pytest.fixture(scope="module")
def idle(tmp_path_factory: pytest.TempPathFactory) -> int:
    """What a broker has mapped that has done a little of everything."""
    return idle_bytes(tmp_path_factory.mktemp("idle"))


@pytest.mark.parametrize("mix", [["bindings", "small"], [CONNECTIONS]], ids=" and ".join)
def test_a_broker_says_no_and_starts_again(tmp_path: Path, idle: int, mix: list[str]) -> None:
    assert judged(tmp_path, mix, idle, ROOM_BYTES) == []


@pytest.mark.thorough
def test_an_account_that_knows_of_nothing_is_found(tmp_path: Path, idle: int) -> None:
    """With a limit that is far above the room the system says no first."""
    faults = judged(tmp_path, ["topics"], idle, ROOM_BYTES, 1 << 40)
    assert faults
