"""Whatever clients do, the broker says and holds what the reference broker does.

5,000 steps here, of fixed seeds; `make model` takes 100,000 (`runs`).
"""

from __future__ import annotations

from model import runs
from model.machine import Machine
from model.reference import Reference

STEPS = 5_000
#: What must have happened in these steps, or they would show little.
SEEN = [
    "ack of a publish", "basic.cancel", "basic.deliver", "basic.get-ok", "circle", "close 403",
    "close 404", "close 405", "close 406", "dead letter", "dead letter of another death",
    "delivery_limit", "expired", "maxlen", "nack of a publish", "perhaps redelivered",
    "queue expired", "redelivered", "reject-publish", "reject-publish-dlx", "rejected", "return",
]  # fmt: skip


def test_the_broker_does_what_the_reference_does() -> None:
    runs.run(STEPS, first_seed=1)
    steps = sum(Machine.steps.values())
    assert steps >= STEPS
    assert runs.never() == []
    assert [what for what in SEEN if not Reference.seen[what]] == []
