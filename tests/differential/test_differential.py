"""The same scripts on RabbitMQ and on Leveret: every difference must be an expected one."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from differential import expected
from differential.script import SCRIPTS, Script
from differential.stage import Host
from differential.transcript import differences

for _module in sorted((Path(__file__).parent / "scripts").glob("*.py")):
    importlib.import_module(f"differential.scripts.{_module.stem}")

EXPECTED = expected.read()


@pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS.keys())
def test_no_unexpected_difference(
    script: Script, rabbitmq: Host, leveret: Host, record_property: Callable[[str, int], None]
) -> None:
    with ThreadPoolExecutor(2) as pool:
        theirs, ours = pool.map(script.run, (rabbitmq, leveret))
    found = differences(theirs, ours)
    faults = expected.judge(script.name, found, EXPECTED)
    record_property("lines", len(theirs))
    record_property("differences", len(found))
    record_property("faults", len(faults))
    if faults:
        pytest.fail("\n".join([*faults, "= RabbitMQ:", *theirs]), pytrace=False)


def test_every_expected_difference_has_its_script() -> None:
    named = {name for places in EXPECTED.values() for name, _ in places}
    assert named <= set(SCRIPTS)


#: Behaviours that no script on this machine can show.
NOT_SHOWN: Final = {
    4: "both brokers listen on the loopback address only",
    16: "no alarm can be set off over AMQP or HTTP",
    64: "RabbitMQ looks once a minute, at a time limit that is of the whole node",
}


def test_every_behaviour_has_a_script() -> None:
    rows = {row for script in SCRIPTS.values() for row in script.rows}
    assert set(range(1, 76)) - rows == set(NOT_SHOWN)
