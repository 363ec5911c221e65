"""`GET /api/sinks/{vhost}`: who commits batches, how far, and what is staged; DELETE forgets one.

A sink is its name and its destination; DELETE, and PUT of another owner, mean all of a name, or the
one that the query parameter `destination` says.

Who asks over TCP sees his own sinks, and those whose names he may *configure*, as if they were
queues; an administrator sees all.  Only its owner and administrators forget one or hand it over.
"""

from __future__ import annotations

import asyncio
from typing import Final

from aiohttp import web

from leveret.broker.admin.stats import SinkListing, SinkStats
from leveret.broker.core.ownership import key_of
from leveret.broker.staging.area import area_of
from leveret.broker.staging.giving import give_sinks
from leveret.broker.staging.release import Sink
from leveret.broker.staging.sinks import GIVE_SINK
from leveret.broker.values.permission import CONFIGURE
from leveret.errors import NotFound
from leveret.management.gate import (
    ACCESS,
    asking_owner,
    is_administrator,
    may_change,
    may_configure,
)
from leveret.management.routes.shared import BROKER, OPERATOR, Row, found_vhost, stream_slices
from leveret.management.routes.users.owners import (
    OFFERS,
    TAKES,
    answer,
    judge,
    owner_row,
    wanted_owner,
)
from leveret.names import Name


async def sinks(request: web.Request) -> web.StreamResponse:
    """Return the sinks of a vhost."""
    listing = SinkListing(request.app[BROKER], found_vhost(request).name)

    async def take(count: int) -> list[SinkStats]:
        while not listing.ended:
            seen = [stats for stats in listing.take(count) if _may_see(request, stats)]
            if seen:
                return seen
            # One sink may take many slices, and there may be many that are not to be seen.
            await asyncio.sleep(0)
        return []

    return await stream_slices(request, take, lambda stats: _row(request, stats))


async def forget(request: web.Request) -> web.Response:
    """Forget a sink, so that it may begin anew."""
    name = request.match_info["sink"]
    destination = request.query.get("destination")
    operator = request.app[OPERATOR]
    operator.begin()
    vhost = found_vhost(request)
    for sink in _by_owner(_named(request)).values():
        may_change(request, sink.owner, _label(sink, vhost.name), GIVE_SINK)
    forgetting = area_of(vhost).sinks.forget(name, destination)
    if forgetting is not None:
        await operator.ended(forgetting)
    return web.Response(status=204)


async def give(request: web.Request) -> web.Response:
    """Hand a sink over to another user, or offer it."""
    operator = request.app[OPERATOR]
    operator.begin()
    vhost = found_vhost(request)
    found = _named(request)
    judged = {
        owners: judge(request, sink.owner, sink.offered, _label(sink, vhost.name), GIVE_SINK)
        for owners, sink in _by_owner(found).items()
    }
    outcomes = [judged[_owners(sink)] for sink in found]
    to = wanted_owner(request)
    area = area_of(vhost)
    area.sinks.check_quota(to, outcomes.count(TAKES))
    given = [sink for sink, outcome in zip(found, outcomes, strict=True) if outcome != OFFERS]
    giving = give_sinks(area, given, to)
    for sink, outcome in zip(found, outcomes, strict=True):
        if outcome == OFFERS:
            sink.offered = to
    await operator.ended(giving)
    return answer(outcomes[0])


def _named(request: web.Request) -> list[Sink]:
    """Return the sinks that a request means.

    Raises: AccessRefused (403), NotFound (404): who may not see a sink of that name does not learn
    whether there is one.
    """
    vhost = found_vhost(request)
    name = request.match_info["sink"]
    found = area_of(vhost).sinks.named(name, request.query.get("destination"))
    by = asking_owner(request)
    if by is not None and not is_administrator(request):
        known = [sink for sink in found if by.is_same(sink.owner) or by.is_same(sink.offered)]
        if not found or len(known) < len(found):
            may_configure(request, Name(name))
    if not found:
        raise NotFound(f"no sink '{name}' in vhost '{vhost.name}'")
    return found


def _owners(sink: Sink) -> tuple[str, str]:
    """Return whose a sink is, and whom it is offered to."""
    return key_of(sink.owner), key_of(sink.offered)


def _by_owner(sinks: list[Sink]) -> dict[tuple[str, str], Sink]:
    """Return one sink for each of their owners: a name may have thousands of destinations."""
    found: dict[tuple[str, str], Sink] = {}
    for sink in sinks:
        found.setdefault(_owners(sink), sink)
    return found


def _label(sink: Sink, vhost: str) -> str:
    place = f" to '{sink.destination}'" if sink.destination else ""
    return f"sink '{sink.name}'{place} in vhost '{vhost}'"


def _may_see(request: web.Request, stats: SinkStats) -> bool:
    access = request.get(ACCESS)
    if access is None or is_administrator(request) or access.owner.is_same(stats.owner):
        return True
    return bool(access.allows(CONFIGURE, Name(stats.name)))


def _row(request: web.Request, stats: SinkStats) -> Row:
    """Return a sink; `last` is when it committed last, in ms since 1970."""
    committed = stats.batch >= 0
    return {
        "sink": stats.name,
        "destination": stats.destination or None,
        "vhost": stats.vhost,
        **owner_row(request, stats.owner),
        "batch": stats.batch if committed else None,
        "last": stats.time_ms if committed else None,
        "releasing": stats.releasing,
        "messages": stats.waiting,
        "staging": {
            "queues": stats.staging_queues,
            "messages": stats.staged,
            "message_bytes": stats.staged_bytes,
            "age_ms": stats.age_ms,
            "owners": stats.owners,
        },
        "message_stats": {
            "released": stats.released,
            "unroutable": stats.unroutable,
            "dropped": stats.dropped,
            "repeated_commits": stats.repeats,
        },
    }


ROUTES: Final = (
    web.get("/api/sinks/{vhost}", sinks),
    web.delete("/api/sinks/{vhost}/{sink}", forget),
    web.put("/api/sinks/{vhost}/{sink}/owner/{user}", give),
)
