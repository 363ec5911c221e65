"""The streaming query that a task belongs to, according to Spark's task context."""

from __future__ import annotations

from typing import Final

from pyspark import TaskContext

from leveret.limits import STREAM_QUERY_NAME_CHARACTERS_MAX

_QUERY_ID: Final = "sql.streaming.queryId"
_DESCRIPTION: Final = "spark.job.description"


def query_of_task() -> tuple[str | None, str | None]:
    """Return the id and the name of this task's streaming query, each None if unknown.

    The job description begins with the name, followed by "id = …", unless the program has set its
    own description.
    """
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
    if context is None or query_id is None:
        return None, None
    name, found, _ = (context.getLocalProperty(_DESCRIPTION) or "").partition(f"id = {query_id}")
    name = name.strip().removesuffix("<br/>").strip()[:STREAM_QUERY_NAME_CHARACTERS_MAX]
    return query_id, name if found and name else None
