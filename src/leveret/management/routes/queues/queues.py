"""`GET /api/queues`, `/api/queues/{vhost}` and `/api/queues/{vhost}/{name}`: queues and streams."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import Final

from aiohttp import web

from leveret.broker.stats.queue_figures import FIGURES, queue_figures
from leveret.broker.stats.stats import QueueStats, queue_names, queue_rows, queue_stats
from leveret.broker.stats.totals import queue_changes
from leveret.errors import NotFound
from leveret.limits import CONSUMERS_SHOWN_MAX
from leveret.management.api_route import ApiRoute
from leveret.management.fields import plain, time_text
from leveret.management.gate import book, seen_vhosts
from leveret.management.paging import PageHeap, PageQuery, filtered, sorted_in_slices, wanted_of
from leveret.management.requests.slices import next_slice
from leveret.management.rights import LOOKING
from leveret.management.routes.lists import listed, send_page, stream_rows
from leveret.management.routes.node.consumers import row as consumer_row
from leveret.management.routes.node.identity import node_name
from leveret.management.routes.shared import (
    BROKER,
    OPERATOR,
    Row,
    found_vhost,
    name_of,
    row_response,
)
from leveret.management.sampling.rates import Ages, asked_ages, lengths, message_stats, rates_known
from leveret.management.sampling.sampler import FirstPlaces
from leveret.management.sampling.series import Samples
from leveret.names import Name
from leveret.session.stats import queue_consumers

#: The columns that a list can be sorted by without making whole rows.
SORTED: Final = frozenset(FIGURES)

#: Queues whose figures are read per slice (about a millisecond).
_FIGURES_AT_ONCE: Final = 2_000

#: The position up to which only the rows that may be on a page are kept.
_KEPT_ROWS_MAX: Final = 5_000

#: The first places of a sorted list are shared by requests for a millisecond per this many queues,
#: since 100,000 take a tenth of a second to compare; fewer than `_SHARED_FROM` are always compared.
_QUEUES_PER_SHARED_MS: Final = 10
_SHARED_FROM: Final = 2_000
_SHARED_PLACES: Final = 500

#: The memory per queue while a list is sorted: for its vhost and name, and for both with its
#: figures.
_NAME_BYTES: Final = 150
_FIGURES_BYTES: Final = 250

#: Names collected per slice (about a millisecond).
_NAMES_AT_ONCE: Final = 10_000

#: The vhost and the name of a queue.
Place = tuple[str, str]


async def queues(request: web.Request) -> web.StreamResponse:
    """Return all queues, or those of a vhost."""
    broker = request.app[BROKER]
    ages = asked_ages(request.query)
    sampler = request.app[OPERATOR].sampler
    wanted = wanted_of(request.query)

    def shown(stats: QueueStats) -> Row:
        return row(stats, sampler.queue(stats.vhost, stats.name, ages.any), ages, sampler.now_ms())

    if wanted.page is None or not SORTED.issuperset(wanted.sort):
        return await stream_rows(request, listed(request, partial(queue_rows, broker)), shown)

    # Whole rows are made only for the queues of the page.
    find = _page_by_figures if wanted.sort else _page_by_name
    page, found, total = await find(request, wanted)

    def shown_if_there(place: Place) -> Row | None:
        stats = queue_stats(broker, *place)
        return None if stats is None else shown(stats)

    return await send_page(request, wanted, page, found, total, shown_if_there)


async def _page_by_figures(request: web.Request, wanted: PageQuery) -> tuple[list[Place], int, int]:
    """Return a page sorted by figures, the number of matching queues and the number of all queues.

    Only the figures that the list is sorted by are read.  With many queues, the order may be some
    seconds old.

    Raises: PageOutOfRange (400 in HTTP).
    """
    figures = listed(request, partial(queue_figures, request.app[BROKER], wanted.sort))
    sampler = request.app[OPERATOR].sampler
    monotonic_ms = sampler.walks.clock.monotonic_ms
    vhost = request.match_info.get("vhost")
    key = (vhost, wanted.sort, wanted.reverse)
    for_all = vhost is not None or seen_vhosts(request) is None
    end = wanted.begin + wanted.page_size
    shared = for_all and not wanted.name and end <= _SHARED_PLACES
    if shared and sampler.first is not None and sampler.first.serves(key, monotonic_ms()):
        wanted.check_range(sampler.first.total)
        return sampler.first.places[wanted.begin : end], sampler.first.total, sampler.first.total
    most = _SHARED_PLACES if shared else end
    kept = PageHeap(most, wanted.reverse, _KEPT_ROWS_MAX)
    total = 0
    while taken := list(islice(figures, _FIGURES_AT_ONCE)):
        if end > _KEPT_ROWS_MAX:
            book(request, len(taken) * _FIGURES_BYTES)
        total += len(taken)
        kept.add(await filtered(wanted, taken, lambda one: str(one[-1])))
        await next_slice()
    wanted.check_range(kept.count)
    places = [(str(one[-2]), str(one[-1])) for one in (await kept.ordered())[:most]]
    if shared and total > _SHARED_FROM:
        until_ms = monotonic_ms() + total // _QUEUES_PER_SHARED_MS
        sampler.first = FirstPlaces(key, places, total, until_ms)
    return places[wanted.begin : end], kept.count, total


async def _page_by_name(request: web.Request, wanted: PageQuery) -> tuple[list[Place], int, int]:
    """Return a page sorted by vhost and name, and the same numbers as `_page_by_figures`."""
    names = await _names_in_order(request)
    found = await filtered(wanted, names, lambda place: place[1]) if wanted.name else names
    wanted.check_range(len(found))
    if wanted.reverse:
        # The list may be shared, so it must not be reversed itself.
        end = len(found) - wanted.begin
        page = found[max(end - wanted.page_size, 0) : end][::-1]
    else:
        page = found[wanted.begin : wanted.end]
    return page, len(found), len(names)


async def _names_in_order(request: web.Request) -> list[Place]:
    """Return the vhosts and names of the requested queues, in order.

    As long as no queue is declared or deleted, users who see the same queues share the list.
    """
    broker = request.app[BROKER]
    sampler = request.app[OPERATOR].sampler
    rows = listed(request, partial(queue_names, broker))
    vhost = request.match_info.get("vhost")
    shared = vhost is not None or seen_vhosts(request) is None
    mark = (vhost, *(int(count) for count in queue_changes(broker)))
    if shared and sampler.ordered is not None and sampler.ordered[0] == mark:
        return sampler.ordered[1]
    names: list[Place] = []
    while taken := list(islice(rows, _NAMES_AT_ONCE)):
        book(request, len(taken) * _NAME_BYTES)
        names += taken
        await next_slice()
    ordered = await sorted_in_slices(names, None)
    if shared:
        sampler.ordered = (mark, ordered)
    return ordered


async def detailed(request: web.Request) -> web.StreamResponse:
    """Return all queues with all their fields, the same as `/api/queues`."""
    return await queues(request)


async def queue(request: web.Request) -> web.Response:
    """Return one queue."""
    name = name_of(request, "name")
    broker = request.app[BROKER]
    vhost = found_vhost(request).name
    found = queue_stats(broker, vhost, name)
    if found is None and "+" in name:
        # Some clients encode a space in a path as in a query.
        name = Name(name.replace("+", " "))
        found = queue_stats(broker, vhost, name)
    if found is None:
        raise NotFound(f"no queue '{name}' in vhost '{request.match_info['vhost']}'")
    ages = asked_ages(request.query)
    sampler = request.app[OPERATOR].sampler
    shown = row(found, sampler.queue(vhost, name, True), ages, sampler.now_ms())
    first = queue_consumers(broker, vhost, name, CONSUMERS_SHOWN_MAX)
    consumers = [consumer_row(one) for one in first]
    return row_response(
        request, {**shown, "consumer_details": consumers, "deliveries": [], "incoming": []}
    )


def row(stats: QueueStats, series: Samples | None, ages: Ages, now_ms: int) -> Row:
    """Return a queue as in RabbitMQ's API, with rates from `series`."""
    done = stats.done
    counts = {
        "publish": done.published,
        "deliver": done.delivered,
        "deliver_no_ack": done.delivered_no_ack,
        "get": done.got - done.got_no_ack,
        "get_no_ack": done.got_no_ack,
        "get_empty": done.got_nothing,
        "redeliver": done.redelivered,
        "ack": done.acked,
    }
    waiting = lengths(stats.ready_count, stats.unacked_count, series, ages, now_ms)
    waiting["messages"] = stats.ready_count + stats.unacked_count + stats.retry_count
    capacity = 1.0 if stats.has_ready_consumer else 0.0
    return {
        **waiting,
        **_places(stats),
        "name": stats.name,
        "vhost": stats.vhost,
        "type": stats.kind,
        "durable": stats.durable,
        "auto_delete": stats.auto_delete,
        "exclusive": stats.exclusive,
        "arguments": plain(stats.arguments),
        "policy": stats.policy,
        "operator_policy": stats.operator_policy,
        "effective_policy_definition": plain(stats.effective_policy),
        "state": "running",
        "node": node_name(),
        "consumers": stats.consumer_count,
        "consumer_capacity": capacity,
        "consumer_utilisation": capacity,
        "exclusive_consumer_tag": None if stats.single_active else stats.sole_consumer,
        "single_active_consumer_tag": stats.sole_consumer if stats.single_active else None,
        "owner_pid_details": _owner(stats.owner),
        "memory": stats.memory_bytes,
        "head_message_timestamp": stats.head_timestamp,
        **_idle(series),
        "rates_known": rates_known(series, now_ms),
        "messages_delayed": stats.retry_count,
        "messages_retained": stats.retained_count,
        "message_bytes": stats.ready_bytes + stats.unacked_bytes + stats.retry_bytes,
        "message_bytes_ready": stats.ready_bytes,
        "message_bytes_unacknowledged": stats.unacked_bytes,
        "message_bytes_retained": stats.retained_bytes,
        "message_stats": {
            **message_stats(counts, series, ages, now_ms),
            "deduplicated": stats.deduplicated,
            "rewound": stats.rewound,
        },
    }


def _places(stats: QueueStats) -> Row:
    """Return the numbers of messages in memory and on disk, and of those that survive a restart.

    A queue of one of RabbitMQ's replicated types also has the nodes of its members: only this node.
    """
    ready, unacked = stats.ready_count + stats.retry_count, stats.unacked_count
    sizes = stats.ready_bytes + stats.retry_bytes + stats.unacked_bytes
    found: Row = {
        "messages_persistent": round(stats.persistent_share * (ready + unacked)),
        "message_bytes_persistent": round(stats.persistent_share * sizes),
    }
    if stats.kind != "classic":
        node = node_name()
        found |= {"leader": node, "members": [node], "online": [node]}
    if stats.kind == "quorum":
        limit = stats.delivery_limit
        found["delivery_limit"] = limit if limit >= 0 else "unlimited"
        found["delayed_retry"] = stats.delayed_retry
    if stats.kind == "stream":
        # All messages of a stream are on disk; blocks cached for readers are not counted.
        return found
    away = stats.ready_count - stats.memory_ready_count
    away_bytes = stats.ready_bytes - stats.memory_ready_bytes
    return found | {
        "messages_ram": ready + unacked - away,
        "messages_ready_ram": ready - away,
        "messages_unacknowledged_ram": unacked,
        "message_bytes_ram": sizes - away_bytes,
        "messages_paged_out": away,
        "message_bytes_paged_out": away_bytes,
    }


def _idle(series: Samples | None) -> Row:
    """Return the time since which a queue has been idle, if it is sampled.

    It is the time of the first sample with the queue's current counts, as in RabbitMQ.
    """
    if series is None or not series.changed_ms:
        return {}
    return {"idle_since": time_text(series.changed_ms)}


def _owner(connection: str) -> Row | None:
    """Return the connection of an exclusive queue as in RabbitMQ's API, or None for others."""
    if not connection:
        return None
    host, _, port = connection.partition(" -> ")[0].rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() else 0
    return {"name": connection, "peer_host": host, "peer_port": number}


ROUTES: Final = (
    ApiRoute("GET", "/api/queues", queues, LOOKING, rows=True, heavy=True),
    ApiRoute("GET", "/api/queues/detailed", detailed, LOOKING, rows=True, heavy=True),
    ApiRoute("GET", "/api/queues/{vhost}", queues, LOOKING, rows=True, heavy=True),
    ApiRoute("GET", "/api/queues/{vhost}/{name}", queue, LOOKING),
)
