"""A data directory that holds more than may be made anew: limits that were lowered later.

    git worktree add /tmp/older bfbd53f && make -C /tmp/older setup
    /tmp/older/.venv/bin/python tests/kept/larger.py bfbd53f

Run by the Python of that build, it writes `tests/kept/<name>-larger.zip`.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    # The helpers that all tests share lie one folder up.
    sys.path[0] = str(Path(__file__).parents[1])

from kept.declared import LONG_MS
from kept.filling import COMMIT_KEY, SETTINGS, uri_of
from kept.make import HERE, pack
from leveret.client import BasicProperties
from leveret.client.blocking import connect
from support.brokers.broker_process import BrokerProcess

LONG: Final = SETTINGS | {"publisher_expiry_ms": str(LONG_MS)}

#: Where they are, and how many there are of each.
NAME: Final = "bfbd53f-larger"
PARTITIONS: Final = 1000
KEYS: Final = [f"k{number}" for number in range(1000)]
SINKS: Final = 4500

#: The arguments of the super stream.
WIDE: Final[dict[str, object]] = {
    "x-queue-type": "stream",
    "x-super-stream-partitions": PARTITIONS,
}


def fill(broker: BrokerProcess) -> None:
    """Make a super stream, messages with long lists of keys, and sinks."""
    with connect(uri_of(broker, "/")) as connection:
        channel = connection.channel()
        channel.confirm_select()
        channel.queue_declare("wide", durable=True, arguments=WIDE)
        for key in KEYS[:20]:
            channel.publish_nowait(key.encode(), "wide", key)
        channel.queue_declare("last", durable=True)
        arguments: dict[str, object] = {"x-dead-letter-exchange": "amq.direct"}
        channel.queue_declare("rejected", durable=True, arguments=arguments)
        channel.queue_bind("rejected", "amq.direct", "here")
        copied = BasicProperties(delivery_mode=2, headers={"CC": KEYS[:-1], "BCC": [KEYS[-1]]})
        channel.publish_nowait(b"rejected", "amq.direct", "here", copied)
        channel.queue_bind("last", "amq.direct", KEYS[-1])
        arguments = {"x-staging-sink": "copies", "x-staging-batch": 2, "x-expires": LONG_MS}
        channel.queue_declare("staged", durable=True, arguments=arguments)
        headers: dict[str, object] = {
            "x-staged-exchange": "amq.direct",
            "x-staged-routing-key": "here",
            "CC": KEYS,
        }
        staged = BasicProperties(delivery_mode=2, headers=headers)
        channel.publish_nowait(b"staged", "", "staged", staged)
        for sink in ["copies", *(f"s{number}" for number in range(SINKS))]:
            text = f'{{"sink": "{sink}", "batch": 1, "queues": []}}'
            channel.publish_nowait(text.encode(), "", COMMIT_KEY)
        channel.wait_for_confirms()


def main() -> None:
    """Fill a directory, and pack what a kill leaves of it."""
    name = sys.argv[1]
    with tempfile.TemporaryDirectory(prefix="leveret-kept-") as temporary:
        place = Path(temporary) / "packed"
        place.mkdir()
        with BrokerProcess(place / "data", settings=LONG) as broker:
            fill(broker)
            broker.kill()
        (place / "data" / "management.sock").unlink(missing_ok=True)
        pack(place, HERE / f"{name}-larger.zip")


if __name__ == "__main__":
    main()
