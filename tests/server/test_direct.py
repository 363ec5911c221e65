"""The client within the broker's process: it copies no body, and lets others have their turns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from leveret.app.embedded import Handles
from leveret.server.direct.client import DirectClient
from leveret.testing import Broker
from leveret.wire.methods import (
    BasicAck,
    BasicGet,
    BasicGetOk,
    ConfirmSelect,
    ConfirmSelectOk,
    QueueDeclare,
    QueueDeclareOk,
)

#: A body of many frames, with something at its ends and between them.
BODY = b"<" + bytes(range(256)) * 65_536 + b">"

#: What goes in before others have a turn, at most.
TURN_BYTES = 2 * 1024 * 1024


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    """A running broker."""
    with Broker() as running:
        yield running


async def got(channel: DirectClient) -> bytes:
    """Return the body of the message that the queue holds, and leave it there."""
    answer = await channel.request(BasicGet("long"), BasicGetOk)
    return answer.body


async def turns_of_others(ends: asyncio.Future[None]) -> int:
    """Count the turns that others have until it ends."""
    turns = 0
    while not ends.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


def test_a_long_body_is_published_in_turns_and_got_without_a_copy(broker: Broker) -> None:
    async def publish_and_get(handles: object) -> tuple[int, list[bytes]]:
        assert isinstance(handles, Handles)
        opens = handles._node.listeners._open_direct  # noqa: SLF001 (no other one has it)
        async with opens("guest", "/") as channel:
            await channel.request(ConfirmSelect(), ConfirmSelectOk)
            await channel.request(QueueDeclare("long"), QueueDeclareOk)
            ends = asyncio.get_running_loop().create_future()
            others = asyncio.create_task(turns_of_others(ends))
            await channel.publish("", "long", b"\0\0", BODY, BasicAck)
            ends.set_result(None)
            turns = await others
            bodies = [await got(channel)]
        async with opens("guest", "/") as channel:
            bodies.append(await got(channel))
        return turns, bodies

    turns, (first, second) = broker._call(publish_and_get)  # noqa: SLF001 (it is no other one's)
    is_right, is_copied = first == BODY, first is not second
    assert is_right
    assert not is_copied, "an answer has a copy of what the queue holds"
    assert turns > len(BODY) // TURN_BYTES
