"""Consumer clusters under load: members killed by SIGKILL and added while messages are handled.

    .venv/bin/python -m soak.clusters [--messages 100000] [--kills 30] [--seed 7]

Three clusters of four member processes share a topic.  It prints for each how many messages were
handled, how many of them twice, and what was missing, unmarked or out of order, and ends with 1 if
anything was.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
import time
from pathlib import Path

from support.brokers.broker_process import BrokerProcess
from support.clusters.cluster_load import run


def main() -> int:
    """Run it once."""
    parser = argparse.ArgumentParser(
        prog="soak.clusters", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(1 << 32))
    parser.add_argument("--uri", help="of a running broker, instead of one of its own")
    given = parser.parse_args()
    begun = time.monotonic()

    def say(text: str) -> None:
        print(f"clusters {time.monotonic() - begun:6.0f} s: {text}", file=sys.stderr, flush=True)

    say(f"seed {given.seed}")
    topic = f"soak-{secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory() as directory:
        broker = BrokerProcess(Path(directory))
        try:
            uri = given.uri or broker.start().uri
            report = run(uri, topic, given.messages, given.kills, given.seed, say)
        finally:
            broker.kill()
    print(*report.lines(), sep="\n")
    print("holds" if report.holds else "BROKEN")
    return 0 if report.holds else 1


if __name__ == "__main__":
    raise SystemExit(main())
