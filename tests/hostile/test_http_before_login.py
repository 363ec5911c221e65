"""A stranger on the port of HTTP costs next to nothing: no body is inflated, read on or waited for.

And who is idle leaves his place to who is not, however many they are.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gzip
import json
import re
import zlib
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from leveret.app.parts import SystemClock
from leveret.broker.attributes.queue_attributes import QueueAttributes
from leveret.broker.users.users import User, hash_password
from leveret.clock import LivedClock, ManualClock
from leveret.limits import HTTP_WRITE_BYTES_MAX
from leveret.management.alarm import Alarm, timeout
from leveret.names import Name
from leveret.server.closing.lingering import LINGER_BYTES_MAX
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.http.users_api import (
    KERNEL_BYTES_MAX,
    RIGHT,
    WRONG,
    Api80,
    ended,
    head,
    listening,
    run,
    until,
)

#: A megabyte of nothing, as each coding has it.
CODED: Final = {
    "gzip": gzip.compress(bytes(1_000_000)),
    "deflate": zlib.compress(bytes(1_000_000)),
    "br": b"\x5b\xff\xff\x0f\x00\x24\x00",
    "zstd": b"\x28\xb5\x2f\xfd\x80\x00\x00\x00",
    "GZIP": gzip.compress(bytes(1_000_000)),
    "unheard-of": b"x",
}


# -- bodies ---------------------------------------------------------------------------------------


async def poured(api: Api80, request: bytes, piece: bytes) -> tuple[bytes, int]:
    """Send a head and then pieces without end; return the answer and how many bytes were taken."""
    reader, writer = await api.dial()
    answer = asyncio.ensure_future(ended(reader))
    taken = 0
    writer.write(request)
    with contextlib.suppress(ConnectionError):
        while not answer.done() and taken < 4 * KERNEL_BYTES_MAX:
            writer.write(piece)
            taken += len(piece)
            await writer.drain()
            # The other side runs in this loop too.
            await asyncio.sleep(0)
    writer.close()
    return await answer, taken


def chunked(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


@pytest.mark.parametrize("login", ["", WRONG], ids=["none", "wrong"])
@pytest.mark.parametrize("coding", ["identity", *CODED])
def test_a_strangers_body_is_not_read(login: str, coding: str) -> None:
    """The answer comes at once, and the connection ends soon after."""

    async def scene(api: Api80) -> None:
        fields = [f"Content-Encoding: {coding}", "Transfer-Encoding: chunked"]
        fields += [login] if login else []
        piece = chunked(CODED.get(coding, b"x") * 1000)
        for path in ("/api/streams/%2F", "/nowhere"):
            answer, taken = await poured(api, head(*fields, method="POST", path=path), piece)
            assert taken < LINGER_BYTES_MAX + KERNEL_BYTES_MAX
            assert answer.startswith(b"HTTP/1.1 401 ")

    run(scene)


@pytest.mark.parametrize("coding", CODED)
def test_no_body_is_inflated_for_anybody(coding: str) -> None:
    """RabbitMQ's API takes none that is compressed either."""

    async def scene(api: Api80) -> None:
        body = CODED[coding]
        path = "/api/super-streams/%2F/s"
        fields = (RIGHT, f"Content-Encoding: {coding}", f"Content-Length: {len(body)}")
        answer = await api.ask(head(*fields, "Connection: close", method="PUT", path=path) + body)
        assert answer.startswith(b"HTTP/1.1 415 ")
        assert b"Accept-Encoding: identity" in answer
        body = b'{"partitions": 1}'
        fields = (RIGHT, "Content-Encoding: identity", f"Content-Length: {len(body)}")
        answer = await api.ask(head(*fields, "Connection: close", method="PUT", path=path) + body)
        assert answer.startswith(b"HTTP/1.1 201 ")

    run(scene)


def test_a_small_body_of_a_stranger_keeps_the_connection() -> None:
    """A client that learns only from the answer that it needs a password goes on."""

    async def scene(api: Api80) -> None:
        reader, writer = await api.dial()
        writer.write(head("Content-Length: 2", method="POST") + b"{}")
        assert b" 401 " in await reader.readuntil(b"\r\n\r\n")
        body = await reader.readuntil(b"}")
        assert json.loads(body)["error"] == "not_authorised"
        writer.write(head(RIGHT, "Connection: close"))
        assert (await ended(reader)).startswith(b"HTTP/1.1 200 ")
        writer.close()

    run(scene)


def test_nobody_is_told_to_send_a_body_before_he_is_known() -> None:
    async def scene(api: Api80) -> None:
        asked = ("Expect: 100-continue", "Content-Length: 17")
        path = "/api/super-streams/%2F/s"
        for login in ((), (WRONG,)):
            answer = await api.ask(head(*asked, *login, method="PUT", path=path))
            assert answer.startswith(b"HTTP/1.1 401 ")
            assert b"100 Continue" not in answer
        reader, writer = await api.dial()
        writer.write(head(*asked, RIGHT, "Connection: close", method="PUT", path=path))
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b'{"partitions": 1}')
        assert (await ended(reader)).startswith(b"HTTP/1.1 201 ")
        writer.close()
        answer = await api.ask(
            head("Expect: money", "Content-Length: 17", RIGHT, method="PUT", path=path)
        )
        assert answer.startswith(b"HTTP/1.1 417 ")

    run(scene)


@pytest.mark.parametrize(
    "request_",
    [
        head("Connection: Upgrade", "Upgrade: websocket"),
        head("Connection: Upgrade", "Upgrade: h2c"),
        b"GET /" + b"x" * 1_000_000,
        b"GET / HTTP/1.1\r\nX: " + b"y" * 1_000_000,
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 100_000,
        b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5;"
        + b"x" * 1_000_000,
    ],
    ids=["websocket", "h2c", "line", "field", "fields", "extension"],
)
def test_what_a_stranger_sends_without_end_is_not_taken(request_: bytes) -> None:
    """Of what is no body either; what the connection does not read ends by its time."""

    async def play() -> None:
        async with listening(idle_seconds=1.0, clock=SystemClock()) as api:
            answer, taken = await poured(api, request_, b"z" * 65_536)
            assert taken < KERNEL_BYTES_MAX
            assert not answer or re.match(rb"HTTP/1\.[01] 4", answer)
            assert api.judged == 0

    asyncio.run(play())


# -- places ---------------------------------------------------------------------------------------

IDLE: Final = {
    "silent": b"",
    "begun": b"G",
    "dribbling": b"GET / HTTP/1.1\r\nX-Slow: ",
    "body": head("Content-Length: 1000", method="POST")[:-2],
}


@pytest.mark.parametrize("said", IDLE.values(), ids=IDLE)
def test_who_says_nothing_leaves_his_place(said: bytes) -> None:
    """Ten times as many as there are places, and a user who asks now and then."""

    async def scene(api: Api80) -> None:
        kept, user = await api.dial()
        idle = []
        for number in range(101):
            if number > 0:
                _, writer = await api.dial()
                writer.write(said)
                idle.append(writer)
            if number % 10 == 0:
                user.write(head(RIGHT))
                assert b" 200 " in await kept.readuntil(b"\r\n\r\n")
                assert b"[]" in await kept.readuntil(b"\r\n0\r\n\r\n")
                assert (await api.ask(head(RIGHT, "Connection: close"))).startswith(b"HTTP/1.1 200")
        assert len(api.admission.slots) <= 10
        assert api.admission.expelled >= 90
        assert api.admission.refused == 0
        for one in [*idle, user]:
            one.close()

    run(scene, places=10)


def test_users_who_work_keep_their_places() -> None:
    """Where all do, the newcomer goes; an idle one goes before that."""

    async def scene(api: Api80) -> None:
        path = "/api/super-streams/%2F/s"
        made = head(RIGHT, "Content-Length: 17", "Connection: close", method="PUT", path=path)
        assert b" 201 " in await api.ask(made + b'{"partitions": 1}')
        working = [await api.dial() for _ in range(3)]
        for _, writer in working:
            writer.write(head(RIGHT, path="/api/streams/%2F/s-0/chunks?wait_ms=60000"))
        await until(lambda: api.watchers("s-0") == 3)
        reader, writer = await api.dial()
        assert await ended(reader) == b""
        writer.close()
        assert (api.admission.refused, api.admission.expelled) == (1, 0)
        api.node.broker.vhost("/").queues.delete(None, Name("s-0"), False, False)
        for reader, _ in working:
            assert b" 404 " in await reader.readuntil(b"\r\n\r\n")
        assert (await api.ask(head(RIGHT, "Connection: close"))).startswith(b"HTTP/1.1 200 ")
        assert api.admission.expelled == 1
        for _, writer in working:
            writer.close()

    run(scene, places=3)


def test_one_user_takes_some_of_the_places_only() -> None:
    """Long polls are work, so none of them makes room: a user has so many at once."""

    async def scene(api: Api80) -> None:
        path = "/api/super-streams/%2F/s"
        made = head(RIGHT, "Content-Length: 17", "Connection: close", method="PUT", path=path)
        assert b" 201 " in await api.ask(made + b'{"partitions": 1}')
        users = api.node.broker.users
        users.put(User("other", hash_password(b"salt", b"other"), []))
        users.set_permission("other", "/", "", "", ".*")
        polls = [await api.dial() for _ in range(3)]
        for _, writer in polls:
            writer.write(head(RIGHT, path="/api/streams/%2F/s-0/chunks?wait_ms=60000"))
        await until(lambda: api.watchers("s-0") == 3)
        listing = "/api/streams/%2F/s-0"
        refused = await api.ask(head(RIGHT, "Connection: close", path=listing))
        assert refused.startswith(b"HTTP/1.1 503 ")
        assert b"Retry-After" in refused
        other = "Authorization: Basic " + base64.b64encode(b"other:other").decode()
        welcome = await api.ask(head(other, "Connection: close", path=listing))
        assert welcome.startswith(b"HTTP/1.1 200 ")
        api.node.broker.vhost("/").queues.delete(None, Name("s-0"), False, False)
        for reader, _ in polls:
            assert b" 404 " in await reader.readuntil(b"\r\n\r\n")
        again = await api.ask(head(RIGHT, "Connection: close"))
        assert again.startswith(b"HTTP/1.1 200 ")
        for _, writer in polls:
            writer.close()

    run(scene, requests_per_user=3)


def test_a_user_has_so_many_lists_at_once() -> None:
    """Each holds memory while its peer reads nothing; long polls, which hold none, may be more."""

    async def scene(api: Api80) -> None:
        vhost = api.node.broker.vhost("/")
        # More than the buffers of a connection hold.
        arguments: dict[str, object] = {"x-none": "x" * 30_000}
        for number in range(600):
            attributes = QueueAttributes(True, arguments=arguments)
            vhost.queues.declare(None, Name(f"q-{number}"), attributes)
        lists = [await api.dial() for _ in range(3)]
        for reader, writer in lists:
            writer.write(head(RIGHT, path="/api/queues"))
            assert b" 200 " in await reader.readuntil(b"\r\n\r\n")
        refused = await api.ask(head(RIGHT, "Connection: close", path="/api/vhosts"))
        assert refused.startswith(b"HTTP/1.1 503 ")
        streams = await api.ask(head(RIGHT, "Connection: close", path="/api/streams/%2F"))
        assert streams.startswith(b"HTTP/1.1 200 ")
        # What nobody reads is held a part at a time.
        transports = [one.transport for one in api.connections.server.connections]
        held = [one.get_write_buffer_size() for one in transports if one is not None]
        assert max(held) < 4 * HTTP_WRITE_BYTES_MAX
        for _, writer in lists:
            writer.close()
        await until(lambda: len(api.connections.server.connections) == 0)
        again = await api.ask(head(RIGHT, "Connection: close", path="/api/vhosts"))
        assert again.startswith(b"HTTP/1.1 200 ")

    run(scene, api_requests_per_user=3)


def test_who_sends_a_body_slowly_leaves_his_place() -> None:
    """It is asked for before it is known what its user may do: he need not have any right."""

    async def scene(api: Api80) -> None:
        users = api.node.broker.users
        users.put(User("nobody", hash_password(b"salt", b"nobody"), []))
        users.set_permission("nobody", "/", "", "", "")
        login = "Authorization: Basic " + base64.b64encode(b"nobody:nobody").decode()
        path = "/api/super-streams/%2F/s"

        def came(number: int) -> bool:
            return api.judged == number or api.admission.refused > 0

        slow = []
        for number in range(1, 31):
            _, writer = await api.dial()
            writer.write(head(login, "Content-Length: 17", method="PUT", path=path) + b"{")
            slow.append(writer)
            # More than there are places: he is let in where an older one has gone.
            await until(partial(came, number))
            # And known by the turn after that.
            for _ in range(10):
                await asyncio.sleep(0)
        assert (api.admission.refused, api.admission.expelled) == (0, 20)
        answer = await api.ask(head(RIGHT, "Connection: close"))
        assert answer.startswith(b"HTTP/1.1 200 ")
        for writer in slow:
            writer.close()

    run(scene, places=10)


# -- time -----------------------------------------------------------------------------------------


def test_a_pause_of_the_process_is_no_silence_of_a_request() -> None:
    """An alarm that the loop finds due, though a pause took the time, waits for what is left."""

    async def play() -> None:
        clock = ManualClock()
        lived = LivedClock(clock)
        called = asyncio.Event()
        alarm = Alarm(lived, 0.05, called.set)
        with pytest.raises(TimeoutError):
            # The clock has not moved, so that nothing was lived.
            await asyncio.wait_for(called.wait(), 0.2)
        clock.advance(3_600_000)
        lived.monotonic_ms()
        await asyncio.wait_for(called.wait(), 60)
        alarm.cancel()
        clock.advance(1000)
        with pytest.raises(TimeoutError):
            async with timeout(lived, 0):
                await asyncio.Event().wait()

    asyncio.run(play())


# -- a real broker --------------------------------------------------------------------------------


def test_a_broker_refuses_compressed_definitions_of_its_operator(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as broker:
        api = Api(broker.data_dir / "management.sock")
        body = gzip.compress(json.dumps({"vhosts": [{"name": "v"}]}).encode())
        api.request("POST", "/api/definitions", body, {"Content-Encoding": "gzip"})
        response = api.getresponse()
        assert response.status == 415
        assert "no Content-Encoding is supported" in json.loads(response.read())["reason"]
        _, vhosts, _ = api.answer("/api/vhosts")
        assert isinstance(vhosts, list)
        assert [vhost["name"] for vhost in vhosts] == ["/"]
        api.close()
