"""A file for each job that `spark-submit` can be given; the arguments are those of the command.

    spark-submit --master … "$(python -m leveret.cli.pipeline.submit route)" --path /data/archive …

Where Spark runs and with how much of what is spark-submit's to say.
"""

from __future__ import annotations

import sys
from pathlib import Path


def submit_file(job: str) -> Path:
    """Return the file of a job.  Raises: KeyError."""
    path = Path(__file__).with_name(f"{job}.py")
    if job.startswith("_") or not path.exists():
        raise KeyError(job)
    return path


def run(job: str) -> None:
    """Run a job's command with the arguments of this process."""
    from leveret.cli import main

    sys.argv[1:1] = ["pipeline", job]
    main()
