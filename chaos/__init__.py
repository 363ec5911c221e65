"""Proof from outside: real broker processes that are killed, cut off and damaged, and a scoreboard.

It is no test suite: its counts are large, it wants root for some of its parts, and it ends in one
table.  `make chaos` runs all of it; `chaos/run.py` lists the scenarios.

Each scenario is a module with `NAME`, `RUNS` (the full count) and `run(runs, seed, say)`.  The
clients, ledgers and broker processes are those of `tests/`; RabbitMQ is started as `bench/` does.
"""

from __future__ import annotations

import sys
from pathlib import Path

#: The project's directory.
ROOT = Path(__file__).resolve().parents[1]

for _shared in ("tests", "bench"):
    if str(ROOT / _shared) not in sys.path:
        sys.path.append(str(ROOT / _shared))
