"""`python -m leveret.cli.pipeline.submit JOB` prints the file to give to spark-submit."""

from __future__ import annotations

import sys

from leveret.cli.pipeline.submit import submit_file

if __name__ == "__main__":
    try:
        print(submit_file(sys.argv[1]))
    except (IndexError, KeyError):
        sys.exit("name one of the jobs of `leveret pipeline`")
