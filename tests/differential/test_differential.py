"""The same scripts on RabbitMQ and on Leveret: every difference must be an expected one.

A script is played once on Leveret, and at the same time on each RabbitMQ that can be run.
"""

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
    script: Script,
    rabbitmq: Host,
    rabbitmq_next: Host | None,
    leveret: Host,
    record_property: Callable[[str, object], None],
) -> None:
    others = [rabbitmq] if rabbitmq_next is None else [rabbitmq, rabbitmq_next]
    with ThreadPoolExecutor(len(others) + 1) as pool:
        ours, *theirs = pool.map(script.run, (leveret, *others))
    failures = []
    for host, said in zip(others, theirs, strict=True):
        found = differences(expected.levelled(host, script.name, said, ours), ours)
        faults = expected.judge(host, script.name, found, EXPECTED)
        record_property(f"lines {host.version}", len(said))
        record_property(f"differences {host.version}", len(found))
        record_property(f"faults {host.version}", len(faults))
        if faults and expected.is_recorded(host):
            failures += [*faults, f"= RabbitMQ {host.version}:", *said]
        elif faults:
            record_property(f"shown {host.version}", "\n".join(faults))
    record_property("versions", " ".join(host.version for host in others))
    if failures:
        pytest.fail("\n".join(failures), pytrace=False)


def test_every_expected_difference_has_its_script() -> None:
    named = {place.script for places in EXPECTED.values() for place in places}
    assert named | {one.script for one in expected.EVERYWHERE} <= set(SCRIPTS)


#: Behaviours that no script on this machine can show.
NOT_SHOWN: Final = {
    4: "both brokers listen on the loopback address only",
    16: "no alarm can be set off over AMQP or HTTP",
    64: "RabbitMQ 3.10 checks once a minute, and the time limit is of the whole node",
}


def test_every_behaviour_has_a_script() -> None:
    rows = {row for script in SCRIPTS.values() for row in script.rows}
    assert set(range(1, 76)) - rows == set(NOT_SHOWN)
