"""`/api/publishers/{vhost}/{queue}`: the publishers of a queue that use publisher deduplication.

GET returns the last publishing id of each publisher and the owner of its name.  DELETE forgets a
publisher, which may then start again with any publishing id.  PUT of an owner transfers the name.

Over TCP, GET requires any permission on the queue; only the owner of a name and administrators can
forget or transfer it.
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from leveret.broker.publishers.publishers import GIVE_PUBLISHER, PublisherProgress
from leveret.broker.queue.queue import Queue
from leveret.broker.stats.stats import PublisherStats, publisher_rows
from leveret.errors import NotFound
from leveret.management.api_route import ApiRoute
from leveret.management.gate import asking_owner, is_administrator, may_change, may_see
from leveret.management.rights import USER
from leveret.management.routes.lists import stream_rows
from leveret.management.routes.shared import OPERATOR, Row, found_vhost, name_of
from leveret.management.routes.users.owners import (
    OFFERS,
    TAKES,
    answer,
    judge,
    owner_row,
    wanted_owner,
)


async def publishers(request: web.Request) -> web.StreamResponse:
    """Return the publishers of a queue or a stream."""
    queue = _queue(request)
    return await stream_rows(request, publisher_rows(queue), lambda stats: _row(request, stats))


async def forget(request: web.Request) -> web.Response:
    """Forget a publisher, so that it can start again with any publishing id."""
    async with request.app[OPERATOR].changing():
        queue = _queue(request)
        found = _named(request, queue)
        for _, known in found:
            may_change(request, known.owner, _label(request), GIVE_PUBLISHER)
        for name, _ in found:
            queue.target.forget_publisher(name)
    return web.Response(status=204)


async def give(request: web.Request) -> web.Response:
    """Transfer the name of a publisher to another user, or offer it."""
    async with request.app[OPERATOR].changing():
        queue = _queue(request)
        found = _named(request, queue)
        publishers = queue.target.publishers
        assert publishers is not None
        label = _label(request)
        outcomes = [
            judge(request, known.owner, known.offered, label, GIVE_PUBLISHER) for _, known in found
        ]
        to = wanted_owner(request)
        publishers.check_quota(to, outcomes.count(TAKES), queue.name)
        for (name, known), outcome in zip(found, outcomes, strict=True):
            if outcome == OFFERS:
                known.offered = to
            else:
                queue.target.give_publisher(name, to)
    return answer(outcomes[0])


def _queue(request: web.Request) -> Queue:
    """Return the queue in the path.

    Raises: AccessRefused (403); NotFound (404).
    """
    name = name_of(request, "queue")
    may_see(request, name)
    queue = found_vhost(request).queues.existing(name, None)
    if not is_administrator(request):
        queue.check_user(asking_owner(request))
    return queue


def _named(request: web.Request, queue: Queue) -> list[tuple[bytes, PublisherProgress]]:
    """Return the publishers of a queue with the name in the path.  Raises: NotFound (404)."""
    text = request.match_info["publisher"]
    publishers = queue.target.publishers
    names = [] if publishers is None else publishers.called(text)
    if publishers is None or not names:
        raise NotFound(f"no publisher '{text}' of queue '{queue.name}'")
    return [(name, publishers.by_name[name]) for name in names]


def _label(request: web.Request) -> str:
    path = request.match_info
    return f"publisher name '{path['publisher']}' of queue '{path['queue']}'"


def _row(request: web.Request, stats: PublisherStats) -> Row:
    """Return a publisher; `last` is the time of its last publish, in ms since 1970."""
    return {
        "publisher": stats.name,
        "publishing_id": stats.number,
        "last": stats.time_ms,
        **owner_row(request, stats.owner),
    }


ROUTES: Final = (
    ApiRoute("GET", "/api/publishers/{vhost}/{queue}", publishers, USER, rows=True, heavy=True),
    ApiRoute("DELETE", "/api/publishers/{vhost}/{queue}/{publisher}", forget, USER),
    ApiRoute("PUT", "/api/publishers/{vhost}/{queue}/{publisher}/owner/{user}", give, USER),
)
