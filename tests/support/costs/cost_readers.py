"""Named stream consumers, with offsets stored by the broker, in a world."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from support.costs.cost_worlds import CHANNELS, declare
from support.wire.raw_codec import method

if TYPE_CHECKING:
    from support.costs.cost_worlds import World


def reader_request(world: World) -> None:
    """Read a stream under a name, ack deliveries, or stop; names are often in use already."""
    draw = world.draw
    peer = draw.choices([world.peers[0], world.peers[2]], weights=[4, 1])[0]
    channel = draw.choice(CHANNELS)
    what = draw.choice(["read", "read", "ack", "ack", "stop"])
    if what == "read":
        frames = [
            declare("stream", {"x-queue-type": "stream"}),
            method(channel, "basic.qos", prefetch_count=draw.choice([1, 100, 5_000])),
        ]
        frames += [_consume(world, channel) for _ in range(draw.choice([1, 1, 30]))]
        peer.send(*frames)
    elif what == "ack":
        tag = draw.choice([0, max(peer.tags[channel], 1), peer.tags[channel] // 2 + 1])
        peer.send(method(channel, "basic.ack", delivery_tag=tag, multiple=True))
    else:
        tags = [f"n{draw.randrange(max(world.size, 4))}" for _ in range(draw.choice([1, 30]))]
        peer.send(*[method(channel, "basic.cancel", consumer_tag=tag) for tag in tags])
    if draw.random() < 0.3:
        # Offsets are stored shortly after they change.
        world.node.tick(1_000)


def _consume(world: World, channel: int) -> bytes:
    draw = world.draw
    name = draw.choice(["named", f"n{draw.randrange(max(world.size, 4))}"])
    arguments: dict[str, Any] = {"x-stream-consumer": name, "x-stream-offset": "first"}
    if draw.random() < 0.2:
        arguments["x-stream-filter"] = ["1", "2"]
    streams = [one for one in world.queues if one.startswith(("stream", "super"))]
    return method(
        channel, "basic.consume", queue=draw.choice(["stream", *streams]), consumer_tag=name,
        no_wait=draw.random() < 0.3, arguments=arguments,
    )  # fmt: skip
