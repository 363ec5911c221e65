"""A member of a cluster as a process: it writes a line for each message that it handles.

    python cluster_member.py URI TOPIC CLUSTER PARTITIONS MEMBER

MEMBER is a number, or `-` for the lowest free one.  It writes `joined CLUSTER MEMBER` and then,
before it acks, `CLUSTER KEY SEQUENCE REDELIVERED` for each message, each line by one write to
standard output, which all members share: so the lines are in the order in which messages were
handled, and what was written survives a SIGKILL.  SIGTERM makes it leave.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys

from leveret import ClusterMessage, Consumer

#: About half a millisecond.
WORK_ROUNDS = 1000


async def main(uri: str, topic: str, cluster: str, partitions: str, member: str) -> None:
    """Be a member until SIGTERM."""

    async def on_message(message: ClusterMessage) -> None:
        line = f"{cluster} {message.key} {message.body.decode()} {int(message.redelivered)}\n"
        os.write(1, line.encode())
        # What a handler does after its work is where a kill makes the message come again.
        hashlib.pbkdf2_hmac("sha256", message.body, b"", WORK_ROUNDS)

    consumer = Consumer(
        topic,
        cluster=cluster,
        on_message=on_message,
        uri=uri,
        partitions=int(partitions),
        member=None if member == "-" else int(member),
        prefetch=20,
    )
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    async with consumer:
        os.write(1, f"joined {cluster} {member}\n".encode())
        await stopping.wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
