"""Whatever is asked over HTTP is done and kept, or refused and changes nothing; nothing is a 500.

The requests are made from the table of routes (`hostile_requests`) and go over the real sockets to
a broker in memory (`hostile_node`), which is restarted after each batch.  `make chaos` asks many
more, and a broker process too.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

from support.hostile.hostile_node import HostileNode, Tally, prepare, run_requests
from support.hostile.hostile_requests import Request, cases, good, key_of, mixed, routes, uncovered
from support.hostile.hostile_values import spread

#: Requests over the Unix socket and over TCP, and how many one broker is asked.
COUNT = 600
USERS_COUNT = 120
BATCH = 180

#: What answers a good request of a route whose object the cases do not make.
MISSING = 404


def test_every_route_and_every_field_has_a_good_request() -> None:
    assert not uncovered()


def test_good_requests_are_answered(tmp_path: Path) -> None:
    """Else the hostile ones would be refused for another reason than their hostile place."""
    tally = Tally()

    async def run() -> dict[tuple[str, str], int]:
        hostile = HostileNode(tmp_path, tally)
        found: dict[tuple[str, str], int] = {}
        async with hostile.serving():
            for route in routes():
                request = good(route)
                body = request.body
                found[key_of(route)], _ = await hostile.unix.ask(request.method, request.path, body)
                prepare(hostile.node)
        return found

    found = asyncio.run(run())
    assert {status for key, status in found.items() if key[0] in ("PUT", "POST")} <= {200, 201, 204}
    assert set(found.values()) <= {200, 201, 204, MISSING}
    assert not tally.faults


def test_requests_are_kept_or_change_nothing(tmp_path: Path) -> None:
    random_ = random.Random(1)
    chosen = [(one, False) for one in spread(random_, cases().values(), COUNT * 3 // 4)]
    chosen += [(one, False) for one in mixed(random_, COUNT // 4)]
    chosen += [(one, True) for one in spread(random_, cases(users=True).values(), USERS_COUNT)]
    random_.shuffle(chosen)
    tally = Tally()
    batches: list[list[tuple[Request, bool]]] = [
        chosen[start : start + BATCH] for start in range(0, len(chosen), BATCH)
    ]
    for number, batch in enumerate(batches):
        directory = tmp_path / str(number)
        directory.mkdir()
        run_requests(directory, tally, batch)
    assert not tally.faults
    assert (tally.cases, tally.failures, tally.differences) == (len(chosen), 0, 0)
    assert set(tally.routes) == {" ".join(key_of(route)) for route in routes()}
    assert min(tally.taken, tally.refused) > len(chosen) // 8, "both happen"
