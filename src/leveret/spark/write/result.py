"""The result of a write, and the file with the results: one line of JSON for each commit.

Spark has no place for results: the process that commits returns only a status, and a Python sink
adds nothing to a query's progress (PySpark 4.3).  So a write with the option `resultFile` leaves
its results on the driver's machine, where `watch_writes` (`listener.py`) joins them to the progress
of their query.

Invariants: the file is always replaced as a whole; it holds the newest results, at most
`_RESULTS_MAX`.
"""

from __future__ import annotations

import dataclasses
import fcntl
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

#: The maximum number of results in the file of the option `resultFile`.  With a batch each minute
#: these are the results of almost three days, in less than a megabyte, which every commit writes
#: again.
_RESULTS_MAX: Final = 4_096


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of one commit of a write."""

    #: The sink: Spark's id of a streaming query, or of a save its `writeId` or a generated name.
    sink: str
    #: The destination, such as `queue:orders`; `columns` if the rows name it.
    destination: str
    #: The number of the batch.
    batch: int
    #: The number of rows in the batch.
    rows: int
    #: The rows that an earlier attempt had written, and that were therefore dropped.
    dropped: int
    #: The rows that no queue took.  The broker counts those of a staged batch (`GET /api/sinks`),
    #: because it routes them after the commit.
    unroutable: int


def add_result(path: str | Path, result: WriteResult) -> None:
    """Append a result to a file, which is created if necessary.  Raises: OSError."""
    file = Path(path)
    file.parent.mkdir(parents=True, exist_ok=True)
    # Several writes of one driver may share a file.
    with file.with_name(file.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = [*read_results(file), result][-_RESULTS_MAX:]
        new = file.with_name(file.name + ".new")
        lines = [json.dumps(dataclasses.asdict(one), ensure_ascii=False) for one in kept]
        new.write_text("\n".join(lines) + "\n", encoding="utf-8")
        new.replace(file)


def read_results(path: str | Path) -> list[WriteResult]:
    """Return the results in a file, the oldest first; none if there is no file."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    return [WriteResult(**json.loads(line)) for line in text.splitlines() if line]
