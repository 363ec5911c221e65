"""The base of the errors that the source and the sink raise deliberately."""

from __future__ import annotations


class SourceError(Exception):
    """An error whose text names the thing, the cause and, if there is one, the remedy.

    Spark shows it without a traceback (`entries.py`).
    """
