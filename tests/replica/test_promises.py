"""The witness sees what the faults of the model do not show: other rules prevent it as well."""

from __future__ import annotations

import pytest

from replica.model.cluster import Bounds, Cluster, Event, Setting
from replica.model.log import Group, Log
from replica.model.promises import Promise, Violation

pytestmark = pytest.mark.one_build


@pytest.mark.parametrize(
    ("log", "promise"),
    [((Group(1, 1),), Promise.ONE_LEADER), ((Group(1, 2),), Promise.CONFIRMED_ONCE)],
)
def test_a_second_node_confirms_in_an_epoch(log: Log, promise: Promise) -> None:
    cluster = Cluster(Setting(nodes=2, minimum=1, first_members=1), Bounds())
    cluster.step(Event("sync", 0))
    cluster.step(Event("commit", 0))
    assert cluster.witness.confirmed == (Group(1, 1),)
    first, second = cluster.nodes
    assert first.leader is not None
    second.log, second.leader = log, first.leader.copy()
    with pytest.raises(Violation) as raised:
        cluster.witness.look(cluster.nodes, cluster.registry.state, second)
    assert raised.value.promise is promise
