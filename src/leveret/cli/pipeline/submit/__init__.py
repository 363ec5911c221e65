"""A file for each job, to run with `spark-submit` and the arguments of the command.

    spark-submit --master … "$(python -m leveret.cli.pipeline.submit route)" --path /data/archive …

Options of spark-submit set the master and the resources.
"""

from __future__ import annotations

import sys
from pathlib import Path


def submit_file(job: str) -> Path:
    """Return the path of a job's file.  Raises: KeyError for an unknown job."""
    path = Path(__file__).with_name(f"{job}.py")
    if job.startswith("_") or not path.exists():
        raise KeyError(job)
    return path


def run(job: str) -> None:
    """Run a job's command with the arguments of this process."""
    from leveret.cli import main

    sys.argv[1:1] = ["pipeline", job]
    main()
