"""`/api/sinks/{vhost}`: the sinks with their last batches and staged messages.

GET lists the sinks, DELETE forgets them, and PUT of an owner transfers them.  A sink is identified
by its name and its destination.  DELETE and PUT apply to all sinks of a name, or only to the sink
with the query parameter `destination`.

Over TCP, users see their own sinks, and sinks with names on which they have the permission
*configure*, as if they were queues; administrators see all.  Only its owner and administrators can
forget or transfer a sink.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Final

from aiohttp import web

from leveret.broker.ownership import key_of
from leveret.broker.sinks.area import area_of
from leveret.broker.sinks.claims import Claim, forget_sinks
from leveret.broker.sinks.giving import give_sinks
from leveret.broker.sinks.release import Sink
from leveret.broker.sinks.sinks import GIVE_SINK
from leveret.broker.stats.stats import SinkStats, sink_rows
from leveret.broker.users.permissions import CONFIGURE
from leveret.errors import AccessRefused, NotFound, PreconditionFailed
from leveret.management.api_route import ApiRoute
from leveret.management.audit import PARTLY_DONE
from leveret.management.gate import (
    ACCESS,
    asking_owner,
    is_administrator,
    looking,
    may_change,
    may_configure,
)
from leveret.management.requests.slices import next_slice
from leveret.management.rights import USER
from leveret.management.routes.lists import permitted, stream_slices
from leveret.management.routes.shared import OPERATOR, Row, found_vhost
from leveret.management.routes.users.owners import (
    GIVES,
    OFFERS,
    TAKES,
    answer,
    judge,
    owner_row,
    wanted_owner,
)
from leveret.names import Name

#: The number of sinks checked per slice, and the cost of each.
_JUDGED_AT_ONCE: Final = 1024
_CLAIMED_STEPS: Final = 2


async def sinks(request: web.Request) -> web.StreamResponse:
    """Return the sinks of a vhost."""
    vhost = found_vhost(request)
    rows = sink_rows(vhost)

    async def take(count: int) -> list[SinkStats]:
        while taken := list(islice(rows, count)):
            whole = [stats for stats in taken if stats is not None]
            seen = await permitted(vhost.core, whole, lambda stats: _may_see(request, stats))
            if seen:
                return seen
            # Finding a visible sink may take many slices, because most sinks may be invisible.
            await next_slice()
        return []

    return await stream_slices(request, take, lambda stats: _row(request, stats))


async def forget(request: web.Request) -> web.Response:
    """Forget a sink, so that it can start again."""
    operator = request.app[OPERATOR]
    vhost = found_vhost(request)

    def may_forget(sink: Sink) -> str:
        may_change(request, sink.owner, _label(sink, vhost.name), GIVE_SINK)
        return GIVES

    claims = await _claimed(request, may_forget)
    operator.begin()
    forgetting = forget_sinks(area_of(vhost).sinks, request.match_info["sink"], claims)
    await operator.ended(forgetting)
    return web.Response(status=204)


async def give(request: web.Request) -> web.Response:
    """Transfer a sink to another user, or offer it."""
    operator = request.app[OPERATOR]
    vhost = found_vhost(request)

    def judged(sink: Sink) -> str:
        label = _label(sink, vhost.name)
        return judge(request, sink.owner, sink.offered, label, GIVE_SINK)

    area = area_of(vhost)
    name = request.match_info["sink"]
    claims = await _claimed(request, judged)
    operator.begin()
    to = wanted_owner(request)
    giving = give_sinks(area, name, claims, to)
    assert giving.task is not None
    await operator.ended(giving.task)
    if giving.refusal is not None:
        request[PARTLY_DONE] = giving.any_done
        raise giving.refusal
    if not giving.any_done:
        raise PreconditionFailed(f"sink '{name}' was transferred or forgotten meanwhile; try again")
    return answer(OFFERS if claims[0].offers else GIVES)


async def _claimed(request: web.Request, judged: Callable[[Sink], str]) -> list[Claim]:
    """Return the sinks of a request, each with the outcome that `judged` returns for it.

    The search runs in slices and changes nothing.  Sinks with the same owner that are offered to
    the same user have the same outcome, so `judged` is called only once for them.

    Raises: the errors of `judged`; AccessRefused (403); NotFound (404).  A caller without access
    to the sinks of that name does not learn whether one exists.
    """
    vhost = found_vhost(request)
    sinks = area_of(vhost).sinks
    name = request.match_info["sink"]
    claims: list[Claim] = []
    by = asking_owner(request)
    sees_all = by is None or is_administrator(request)
    outcomes: dict[tuple[str, str], str] = {}
    refusal: AccessRefused | None = None
    foreign = False
    with looking(request):
        found = sinks.named(name, request.query.get("destination"))
        for number, sink in enumerate(found):
            if number % _JUDGED_AT_ONCE == _JUDGED_AT_ONCE - 1:
                sinks.core.scheduler.spent += _CLAIMED_STEPS * _JUDGED_AT_ONCE
                await next_slice()
            if sinks.known(sink.name, sink.destination) is not sink:
                # The sink was forgotten since the previous slice.
                continue
            if by is not None and not sees_all and not foreign:
                foreign = not (by.is_same(sink.owner) or by.is_same(sink.offered))
            if refusal is not None:
                continue
            owners = key_of(sink.owner), key_of(sink.offered)
            outcome = outcomes.get(owners)
            try:
                if outcome is None:
                    outcome = outcomes[owners] = judged(sink)
            except AccessRefused as error:
                refusal = error
            else:
                claims.append(Claim(sink, outcome == TAKES, outcome == OFFERS))
    if foreign or (not claims and not sees_all):
        may_configure(request, Name(name))
    if refusal is not None:
        raise refusal
    if not claims:
        raise NotFound(f"no sink '{name}' in vhost '{vhost.name}'")
    return claims


def _label(sink: Sink, vhost: str) -> str:
    place = f" to '{sink.destination}'" if sink.destination else ""
    return f"sink '{sink.name}'{place} in vhost '{vhost}'"


def _may_see(request: web.Request, stats: SinkStats) -> bool:
    access = request.get(ACCESS)
    if access is None or is_administrator(request) or access.owner.is_same(stats.owner):
        return True
    return bool(access.allows(CONFIGURE, Name(stats.name)))


def _row(request: web.Request, stats: SinkStats) -> Row:
    """Return a sink; `last` is the time of its last commit, in ms since 1970."""
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
    ApiRoute("GET", "/api/sinks/{vhost}", sinks, USER, rows=True, heavy=True),
    ApiRoute("DELETE", "/api/sinks/{vhost}/{sink}", forget, USER, heavy=True),
    ApiRoute("PUT", "/api/sinks/{vhost}/{sink}/owner/{user}", give, USER, heavy=True),
)
