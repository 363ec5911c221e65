"""For `spark-submit`: `leveret pipeline archive` with the arguments that follow this file."""

from __future__ import annotations

from leveret.cli.pipeline.submit import run

if __name__ == "__main__":
    run("archive")
