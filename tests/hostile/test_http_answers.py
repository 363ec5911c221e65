"""What answers of the API hold is booked, and few of a user's that hold much are made at once."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import tracemalloc
from collections.abc import AsyncIterator
from typing import Final

from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.limits import HTTP_HEAVY_REQUESTS_PER_USER_MAX
from leveret.management.api import users_routes
from leveret.management.routes.lists import GATHERED_ROW_BYTES
from leveret.names import Name
from support.http.users_api import KERNEL_BYTES_MAX, RIGHT, Api80, head, run, until
from support.node.core import Node
from support.wire.raw_codec import publish

#: What no connection's buffers hold.
LARGE: Final = 2 * KERNEL_BYTES_MAX

#: Lists that are asked for at once, and the queues in each.
LISTS: Final = 16
QUEUES: Final = 400

BROWSE: Final = "/api/queues/%2F/q/browse"

#: The lists whose length is not for clients to choose, and what waits for something.
SMALL: Final = {
    "GET /api/nodes", "GET /api/memory", "GET /api/nodes/{name}/memory",
    "GET /api/nodes/{name}/memory/relative", "GET /api/cluster-name", "GET /api/config/effective",
    "GET /api/log/stream", "GET /metrics", "GET /metrics/memory-breakdown", "GET /api/backups",
    "GET /api/streams/{vhost}/{name}/offset", "GET /api/streams/{vhost}/{name}/chunks",
    "GET /api/whoami", "GET /api/auth", "GET /api/openapi.json", "GET /api/version",
    "GET /api/extensions", "GET /api/feature-flags", "GET /api/deprecated-features",
    "GET /api/deprecated-features/used", "GET /api/health/checks/alarms",
    "GET /api/health/checks/local-alarms", "GET /api/health/checks/virtual-hosts",
    "GET /api/health/checks/is-in-service", "GET /api/health/checks/ready-to-serve-clients",
    "GET /api/health/checks/below-node-connection-limit",
    "GET /api/health/checks/certificate-expiration/{within}/{unit}",
    "GET /api/health/checks/node-is-quorum-critical",
    "GET /api/health/checks/node-is-mirror-sync-critical",
    "GET /api/health/checks/metadata-store/initialized",
    "GET /api/health/checks/metadata-store/initialized/with-data",
    "GET /api/health/checks/reached-target-cluster-size",
    "GET /api/health/checks/quorum-queues-without-elected-leaders/all-vhosts",
    "GET /api/health/checks/quorum-queues-without-elected-leaders/vhost/{vhost}",
    "GET /api/healthchecks/node", "GET /api/auth/attempts/{name}/source",
}  # fmt: skip


def fill(node: Node, body: bytes) -> None:
    """Have a message wait in the queue `q`."""
    peer = node.connect()
    peer.declare("q")
    peer.send(publish(1, "", "q", body))


def browsing(body: object, *fields: str) -> bytes:
    """Return a request to browse the queue."""
    data = json.dumps(body).encode()
    length = f"Content-Length: {len(data)}"
    return head(RIGHT, length, *fields, method="POST", path=BROWSE) + data


@contextlib.asynccontextmanager
async def asked(
    api: Api80, count: int, request: bytes
) -> AsyncIterator[list[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]:
    """Send a request on so many connections."""
    peers = [await api.dial() for _ in range(count)]
    try:
        for _, writer in peers:
            writer.write(request)
        yield peers
    finally:
        for _, writer in peers:
            writer.close()
        await until(lambda: len(api.connections.server.connections) == 0)


def test_a_few_heavy_requests_of_a_user_are_answered_at_once_and_booked() -> None:
    """Eight browse a message and read nothing: four hold it, and others of the user go on."""

    async def scene(api: Api80) -> None:
        fill(api.node, b"m" * LARGE)
        accounts = api.node.core.accounts
        at_once = HTTP_HEAVY_REQUESTS_PER_USER_MAX
        async with asked(api, 8, browsing({"count": 1})) as peers:
            await until(lambda: accounts.request_bytes >= at_once * LARGE)
            again = await api.ask(head(RIGHT, "Connection: close", path="/api/whoami"))
            assert again.startswith(b"HTTP/1.1 200 ")
            # Bodies of the requests are booked too; of the messages, there are four.
            assert accounts.request_bytes < at_once * LARGE + 65_536
            transports = [one.transport for one in api.connections.server.connections]
            held = [one.get_write_buffer_size() for one in transports if one is not None]
            assert sum(held) < 8 * 1024 * 1024
            # Who goes makes room for who waits.
            for _, writer in peers[:at_once]:
                writer.close()
            await until(lambda: len(api.connections.server.connections) == 8 - at_once)
            await until(lambda: accounts.request_bytes >= at_once * LARGE)
        assert accounts.request_bytes == 0

    run(scene)


def test_an_answer_without_room_in_the_memory_is_refused_before_it_begins() -> None:
    async def scene(api: Api80) -> None:
        fill(api.node, b"m" * LARGE)
        stream = QueueAttributes(True, arguments={"x-queue-type": "stream"})
        api.node.broker.vhost("/").queues.declare(None, Name("s"), stream)
        accounts = api.node.core.accounts
        accounts.request_bytes_max = LARGE
        async with asked(api, 1, browsing({"count": 1})):
            await until(lambda: accounts.request_bytes >= LARGE)
            refused = await api.ask(browsing({"count": 1}, "Connection: close"))
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b"Retry-After" in refused
            assert b"share of the memory" in refused
            chunks = head(RIGHT, "Connection: close", path="/api/streams/%2F/s/chunks")
            refused = await api.ask(chunks)
            assert refused.startswith(b"HTTP/1.1 503 ")
            # What is small has room.
            small = await api.ask(browsing({"count": 1, "truncate": 10}, "Connection: close"))
            assert small.startswith(b"HTTP/1.1 200 ")
        assert (await api.ask(chunks)).startswith(b"HTTP/1.1 200 ")
        assert accounts.request_bytes == 0
        whole = await api.ask(browsing({"count": 1}, "Connection: close"))
        assert whole.startswith(b"HTTP/1.1 200 ")
        assert len(whole) > LARGE

    run(scene)


def test_the_headers_of_one_message_at_a_time_are_decoded() -> None:
    """They take 20 times as much then, and 5 ms a message: all of them were, in slices of 50."""

    async def scene(api: Api80) -> None:
        peer = api.node.connect()
        peer.declare("q")
        headers = {str(number): None for number in range(4000)}
        peer.send(*[publish(1, "", "q", b"m", headers=headers)] * 25)
        tracemalloc.start()
        try:
            answer = await api.ask(browsing({"count": 25}, "Connection: close"))
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert answer.count(b'"3999": null') == 25
        # What was read of the answer is there twice while its parts are joined.
        assert most - 2 * len(answer) < 3_000_000

    run(scene)


def test_the_rows_of_a_list_that_is_put_in_order_are_booked() -> None:
    async def scene(api: Api80) -> None:
        vhost = api.node.broker.vhost("/")
        arguments: dict[str, object] = {"x-none": "x" * 30_000}
        for number in range(2 * KERNEL_BYTES_MAX // 30_000):
            attributes = QueueAttributes(True, arguments=arguments)
            vhost.queues.declare(None, Name(f"q-{number}"), attributes)
        accounts = api.node.core.accounts
        booked = len(vhost.queues.by_name) * GATHERED_ROW_BYTES
        request = head(RIGHT, "Connection: close", path="/api/queues?sort=arguments")
        async with asked(api, 1, request):
            await until(lambda: accounts.request_bytes == booked)
            accounts.request_bytes_max = booked
            refused = await api.ask(request)
            assert refused.startswith(b"HTTP/1.1 503 ")
        assert accounts.request_bytes == 0

    run(scene)


def test_long_lists_of_one_user_have_one_slice_in_each_turn_of_the_loop() -> None:
    """A neighbour's requests wait for one slice, and not for one of each list."""

    async def scene(api: Api80) -> None:
        vhost = api.node.broker.vhost("/")
        for number in range(QUEUES):
            vhost.queues.declare(None, Name(f"q-{number}"), QueueAttributes(False))
        turns = 0

        def core() -> None:
            nonlocal turns
            turns += 1
            if not over:
                asyncio.get_running_loop().call_soon(core)

        over = False
        core()
        request = head(RIGHT, "Connection: close", path="/api/queues")
        answers = await asyncio.gather(*(api.ask(request) for _ in range(LISTS)))
        over = True
        assert all(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)
        assert {answer.count(b'"name": "q-') for answer in answers} == {QUEUES}
        # A hundred queues are more than a slice, and no turn had two of them.
        assert api.slices.count > LISTS * QUEUES // 100
        assert turns >= api.slices.count

    run(scene)


def test_all_who_wait_for_a_message_of_a_stream_have_a_slice_each() -> None:
    """Each makes a chunk of what has come, and they all wake at once."""

    async def scene(api: Api80) -> None:
        stream = QueueAttributes(True, arguments={"x-queue-type": "stream"})
        api.node.broker.vhost("/").queues.declare(None, Name("s"), stream)
        path = "/api/streams/%2F/s/chunks?wait_ms=60000"
        asking = asyncio.gather(
            *(api.ask(head(RIGHT, "Connection: close", path=path)) for _ in range(LISTS))
        )
        await until(lambda: api.watchers("s") == LISTS)
        before = api.slices.count
        api.node.connect().send(publish(1, "", "s", b"comes"))
        api.node.sync()
        assert all(b"comes" in answer for answer in await asking)
        # One to go on, and one behind the chunk that was made.
        assert api.slices.count - before == 2 * LISTS

    run(scene)


def test_what_grows_with_what_clients_made_is_declared() -> None:
    """A list of a route that says nothing of it is one that nobody has judged."""
    known = {f"{one.method} {one.path}" for one in users_routes()}
    # A path that ends with the name of one thing has one answer; what follows a vhost is a list.
    of_one = re.compile(r"(?!.*/\{(vhost|queue|end)\}$).*\}|.*/api/(vhosts|aliveness-test)/[^/]*")
    lists = {name for name in known if name.startswith("GET ") and not of_one.fullmatch(name)}
    heavy = {f"{one.method} {one.path}" for one in users_routes() if one.heavy}
    assert not lists - heavy - SMALL
    assert not heavy & SMALL
    assert known >= SMALL
