"""`make soak`: Spark's promises under kills, on real processes, for as long as is asked for.

Streams are archived to Parquet and written through the sink, and a queue is read, while the driver,
its Python workers and the broker are killed by SIGKILL again and again.  At the end the rows are
counted: published = in the lake = distinct, in order.

It is no test suite: it takes hours, and ends in one table.  A scenario is a module with `NAME`,
`RUNS` (the kills of a full run) and `run(runs, seed, say)`; `soak/run.py` lists them.  The broker
processes are those of `tests/`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

#: The project's directory.
ROOT = Path(__file__).resolve().parents[1]

if str(ROOT / "tests") not in sys.path:
    sys.path.append(str(ROOT / "tests"))


def environment() -> dict[str, str]:
    """Return the environment of a program of ours, in which it finds all that this one does."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests"), *filter(None, sys.path)])
    return os.environ | {"PYTHONPATH": path}
