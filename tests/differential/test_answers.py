"""The HTTP API on RabbitMQ and on Leveret, which hold the same: each field differs by a reason."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from rabbitmq import RabbitMQError

from differential import answers, parity
from differential.expected import RECORDED
from differential.pair import over_tcp
from differential.stage import Host


def heard(host: Host) -> dict[str, object]:
    """Make the topology on a broker, and return the fields of its answers."""
    with answers.used(host) as names:
        return answers.asked(host, names)


def test_no_answer_differs_without_a_reason(
    rabbitmq: Host, leveret: Host, record_property: Callable[[str, int], None]
) -> None:
    with ThreadPoolExecutor(2) as pool:
        theirs, ours = pool.map(heard, (rabbitmq, over_tcp(leveret)))
    found = answers.differences(theirs, ours)
    faults = answers.judge(found, answers.expected())
    record_property("fields", len(theirs))
    if faults:
        pytest.fail("\n".join(faults), pytrace=False)


def test_all_that_rabbitmq_has_is_on_the_page(
    tmp_path: Path, record_property: Callable[[str, int], None]
) -> None:
    """Routes, fields, keys of definitions and metrics of the RabbitMQ of Debian's next release."""
    try:
        version, found = parity.compared(tmp_path)
    except RabbitMQError as error:
        pytest.skip(f"NOT compared: {error}")
    _, faults = parity.explained(found, parity.reasons())
    faults += [f"nothing fits: {one}" for one in parity.unused(found)]
    page = parity.PAGE.read_text()
    names = {parity.named(one) for one in found} - {""}
    faults += [f"not on the page: {name}" for name in sorted(names) if f"`{name}`" not in page]
    record_property("found", len(found))
    if faults and version != RECORDED:
        pytest.skip(f"RabbitMQ {version} is newer than {RECORDED}: " + "\n".join(faults))
    if faults:
        pytest.fail("\n".join([*faults, "after reasons, parity.py --write"]), pytrace=False)


def test_what_lacks_a_reason_and_what_is_gone_are_told() -> None:
    found = answers.differences({"q.a": 1, "q.b": 1, "q.b.c": 2}, {"q.a": 2, "q.d": None})
    assert [str(one) for one in found] == [
        "other: q.a: RabbitMQ 1, Leveret 2",
        "missing: q.b: RabbitMQ 1, Leveret None",
        "added: q.d: RabbitMQ None, Leveret None",
    ]
    reason = answers.Reason("so", (("other", "q.*"), ("missing", "q.b"), ("added", "x.*")))
    assert answers.judge(found, [reason]) == [
        "added: q.d: RabbitMQ None, Leveret None",
        "expected, and gone: added x.*",
    ]
