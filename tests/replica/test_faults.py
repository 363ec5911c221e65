"""Each rule of the replication protocol is needed: without it, the model breaks a promise.

Random walks find most faults soon.  Those that they find late or never have recorded schedules.
"""

from __future__ import annotations

from typing import Final

import pytest

from replica.model.cluster import Bounds, Setting
from replica.model.faults import Fault
from replica.model.promises import Promise
from replica.model.schedules import correct, recorded, run
from replica.model.search import SIZES
from replica.model.walk import told, walk

pytestmark = pytest.mark.one_build

#: By fault, a promise that walks soon see broken.
FOUND_BY_WALKS: Final = {
    Fault.ACK_BEFORE_SYNC: Promise.KEPT,
    Fault.COMMIT_BEFORE_OWN_SYNC: Promise.KEPT,
    Fault.COMMIT_BELOW_MINIMUM: Promise.COPIES,
    Fault.LEADER_SHOWS_SYNCED: Promise.SHOWN_ONCE,
    Fault.LEADER_SHOWS_RECOVERED: Promise.SHOWN_ONCE,
    Fault.FOLLOWER_SHOWS_LOG: Promise.SHOWN_ONCE,
    Fault.CHECKPOINT_OF_WRITTEN: Promise.CHECKPOINT,
    Fault.SHRINK_BEFORE_TRANSACTION: Promise.AWAITED,
    Fault.SHRINK_BELOW_MINIMUM: Promise.COPIES,
    Fault.GROW_AFTER_TRANSACTION: Promise.AWAITED,
    Fault.GROW_WITHOUT_ACKS: Promise.KEPT,
    Fault.GROW_AFTER_FIRST_COMMIT: Promise.RECOVERS,
    Fault.NO_CUT: Promise.KEPT,
    Fault.CUT_BY_NUMBER: Promise.KEPT,
    Fault.CUT_TO_KNOWN_COMMITTED: Promise.KEPT,
    Fault.LEADER_OUTSIDE_SET: Promise.MEMBER_LEADS,
    Fault.OLD_EPOCH_WRITTEN: Promise.KEPT,
    Fault.INCARNATION_KEPT: Promise.KEPT,
    Fault.MEMBERSHIP_BY_NODE: Promise.MEMBER_LEADS,
    Fault.START_OVER_OF_MEMBER: Promise.KEPT,
}
#: Forty times what the slowest of them needs.
WALKS_MAX: Final = 500


def test_every_fault_is_found() -> None:
    by_schedules = {schedule.fault for schedule in recorded().values()}
    assert by_schedules.isdisjoint(FOUND_BY_WALKS)
    assert by_schedules | FOUND_BY_WALKS.keys() == set(Fault)


@pytest.mark.parametrize("fault", FOUND_BY_WALKS, ids=lambda fault: fault.title)
def test_walks_find_a_fault(fault: Fault) -> None:
    for number in range(WALKS_MAX):
        nodes, minimum = SIZES[number % len(SIZES)]
        taken = walk(Setting(nodes, minimum, nodes, fault), Bounds(), f"{fault.title} {number}")
        if taken.violation is not None and taken.violation.promise is FOUND_BY_WALKS[fault]:
            break
    else:
        pytest.fail(f"{WALKS_MAX} walks do not find it")
    again = run(taken.cluster.setting, told(taken)).violation
    assert str(again) == str(taken.violation)


@pytest.mark.parametrize("title", recorded())
def test_a_recorded_schedule_shows_what_a_fault_breaks(title: str) -> None:
    schedule = recorded()[title]
    broken = run(schedule.setting, schedule.events)
    assert broken.violation is not None
    assert broken.violation.promise is schedule.breaks
    assert broken.events == schedule.events


@pytest.mark.parametrize("title", recorded())
def test_the_correct_protocol_survives_a_recorded_schedule(title: str) -> None:
    schedule = recorded()[title]
    assert run(correct(schedule.setting), schedule.events).violation is None
