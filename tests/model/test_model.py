"""Whatever clients do, the broker says and holds what the reference broker does.

3,000 steps here, of fixed seeds; `make model` takes 100,000 (`runs`).
"""

from __future__ import annotations

from model import runs
from model.reference import Reference

STEPS = 3_000
#: So many more at most until all has happened that is listed below.
STEPS_MORE_MAX = 10_000
#: What must have happened, or the steps would show little.
SEEN = [
    "ack of a publish", "basic.cancel", "basic.deliver", "basic.get-ok", "circle", "close 403",
    "close 404", "close 405", "close 406", "dead letter", "dead letter of another death",
    "delayed", "delivery_limit", "expired", "maxlen", "nack of a publish", "perhaps redelivered",
    "queue expired", "redelivered", "reject-publish", "reject-publish-dlx", "rejected", "replayed",
    "return",
]  # fmt: skip


def test_the_broker_does_what_the_reference_does() -> None:
    last = runs.run(STEPS, first_seed=140)
    steps = runs.taken()
    while unseen() and runs.taken() < steps + STEPS_MORE_MAX:
        last = runs.run(runs.taken() + 1, first_seed=last + 1)
    assert runs.taken() >= STEPS
    assert runs.never() == []
    assert unseen() == []


def unseen() -> list[str]:
    """What has not happened."""
    return [what for what in SEEN if not Reference.seen[what]]
