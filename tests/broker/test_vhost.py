"""A vhost's limits, at each and one past it."""

from __future__ import annotations

import pytest

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.broker import Broker
from leveret.broker.vhost.vhost import Vhost
from leveret.errors import PreconditionFailed
from leveret.names import Name
from leveret.store.journal.journal import Journal


@pytest.fixture
def vhost() -> Vhost:
    return Broker(Journal(), 1 << 30).restore_vhost("/")


def declare(vhost: Vhost, name: str) -> None:
    vhost.queues.declare(None, Name(name), QueueAttributes())


def test_queues_have_a_limit(vhost: Vhost) -> None:
    vhost.queues.count_max = 2
    declare(vhost, "a")
    declare(vhost, "b")
    with pytest.raises(PreconditionFailed, match="at most 2 queues"):
        declare(vhost, "c")
    declare(vhost, "a")
    assert set(vhost.queues.by_name) == {"a", "b"}


def test_exchanges_have_a_limit(vhost: Vhost) -> None:
    vhost.exchanges.count_max = len(vhost.exchanges.by_name) + 1
    vhost.exchanges.declare(Name("a"), "topic", False, False, False, {})
    with pytest.raises(PreconditionFailed, match="exchanges"):
        vhost.exchanges.declare(Name("b"), "topic", False, False, False, {})
    assert "b" not in vhost.exchanges.by_name


def test_bindings_have_a_limit(vhost: Vhost) -> None:
    vhost.exchanges.bindings_max = 1
    declare(vhost, "q")
    vhost.exchanges.bind(Name("amq.topic"), Name("q"), True, "a", {}, None)
    with pytest.raises(PreconditionFailed, match="at most 1 bindings"):
        vhost.exchanges.bind(Name("amq.topic"), Name("q"), True, "b", {}, None)
    vhost.exchanges.bind(Name("amq.topic"), Name("q"), True, "a", {}, None)
    assert len(vhost.exchanges.existing(Name("amq.topic")).bindings) == 1
