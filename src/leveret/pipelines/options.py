"""The options of a job as one frozen object, which is made from the arguments of its function.

A job is a function of a session and an options object, and `takes` gives it the fields of that
object as arguments.  So each option has its name, type, default and check in one place, which the
function and the command share.

Invariant: an options object is valid: its class checks the options before Spark does anything.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from leveret.pipelines.refusals import JobError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Fields = ParamSpec("Fields")
Options = TypeVar("Options")
Result = TypeVar("Result")
Job = Callable[["SparkSession", Options], Result]


def takes(
    options: Callable[Fields, Options],
) -> Callable[[Job[Options, Result]], Callable[Concatenate[SparkSession, Fields], Result]]:
    """Return a decorator that gives a job the fields of its options as arguments."""

    def with_fields(
        job: Job[Options, Result],
    ) -> Callable[Concatenate[SparkSession, Fields], Result]:
        @wraps(job)
        def run(spark: SparkSession, /, *args: Fields.args, **kwargs: Fields.kwargs) -> Result:
            return job(spark, options(*args, **kwargs))

        # For `help` and notebooks.
        own = inspect.signature(job)
        session = own.parameters["spark"].replace(kind=inspect.Parameter.POSITIONAL_ONLY)
        fields = inspect.signature(options).parameters.values()
        run.__signature__ = own.replace(parameters=(session, *fields))  # type: ignore[attr-defined]
        return run

    return with_fields


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """The messages that a job reads: a stream (`uri` and `stream`) or an archive (`path`).

    With `path`, `stream` selects one of the archive's streams.  `options` are further options of
    the data source.
    """

    uri: str | None = field(default=None, repr=False)
    stream: str | None = None
    path: str | Path | None = None
    password_env: str | None = None
    options: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Check the options.  Raises: JobError."""
        self.check_source()

    def check_source(self) -> None:
        """Refuse no source and more than one.  Raises: JobError."""
        is_archive = self.path is not None and self.uri is None
        is_stream = self.path is None and self.uri is not None and self.stream is not None
        if not is_archive and not is_stream:
            raise JobError("messages come from a stream (uri and stream) or from an archive (path)")

    def stream_options(self) -> dict[str, str]:
        """Return the options of the data source for the stream."""
        assert self.uri is not None
        assert self.stream is not None
        return {**source_options(self.uri, self.password_env, self.options), "stream": self.stream}


def source_options(
    uri: str, password_env: str | None, options: Mapping[str, str] | None
) -> dict[str, str]:
    """Return the options of the data source that name a broker, and further ones."""
    texts = {**(options or {}), "uri": uri}
    if password_env is not None:
        texts["passwordEnv"] = password_env
    return texts
