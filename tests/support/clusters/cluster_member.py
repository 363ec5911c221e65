"""A member of a cluster as a process: it writes a line for each message that it handles.

    python cluster_member.py URI TOPIC CLUSTER PARTITIONS MEMBER

MEMBER is a number, or `-` for the lowest free one.  The process writes `joined CLUSTER MEMBER` and
then, before each ack, `CLUSTER KEY SEQUENCE REDELIVERED`.  Each line is one write to the standard
output, which all members share.  So the lines are in the order in which messages were handled, and
survive a SIGKILL.  SIGTERM makes the member leave.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import signal
import sys

from leveret import ClusterMessage, Consumer

#: This takes about half a millisecond.
WORK_ROUNDS = 1000


async def main(uri: str, topic: str, cluster: str, partitions: str, member: str) -> None:
    """Be a member until SIGTERM."""

    async def on_message(message: ClusterMessage) -> None:
        line = f"{cluster} {message.key} {message.body.decode()} {int(message.redelivered)}\n"
        os.write(1, line.encode())
        # If the member is killed after the work of the handler, the message is redelivered.
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
