"""Whatever is asked of the API, by whomever, its answer is one that its document declares.

The requests are drawn from the document (`described_requests`), as schemathesis would draw them,
and every operation is tried with every kind of user at least once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from support.http.described_requests import (
    KINDS,
    NOBODY,
    WRONG,
    Asked,
    Described,
    described,
    plain,
    requests,
)

pytestmark = pytest.mark.one_build

#: Requests that are drawn, two thirds of them by the user who may do everything.
EXAMPLES = 600


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Described]:
    """A broker whose document is known."""
    with described(tmp_path_factory.mktemp("described")) as asking:
        yield asking


def check(broker: Described, asked: Asked) -> int:
    """Ask; return the status of the answer, which is as it has to be."""
    status, said = broker.ask(asked)
    assert asked.operation.declares(status), (status, str(asked), said[:300])
    # A check of health that fails says so by 503.
    health = status == 503 and asked.operation.path.startswith("/api/health/")
    assert status < 500 or health, (status, str(asked), said[:300])
    if asked.kind in (NOBODY, WRONG):
        assert status in (400, 401, 404, 415), (status, str(asked))
    return status


def test_every_operation_answers_every_kind_of_user(broker: Described) -> None:
    random_ = random.Random(1)
    statuses: Counter[int] = Counter()
    for operation in broker.operations:
        for kind in KINDS:
            statuses[check(broker, plain(random_, operation, kind))] += 1
    assert {200, 204, 400, 401, 403, 404} <= statuses.keys()


@settings(
    max_examples=EXAMPLES,
    suppress_health_check=list(HealthCheck),
    # What fails is one request, which is short already; to shrink it would ask for thousands.
    phases=[Phase.generate],
)
@given(data=st.data())
def test_drawn_requests_are_answered_as_declared(broker: Described, data: st.DataObject) -> None:
    operation = data.draw(st.sampled_from(broker.operations))
    kind = data.draw(st.sampled_from((*KINDS, *(KINDS[:1] * 2 * len(KINDS)))))
    check(broker, data.draw(requests(operation, kind)))
