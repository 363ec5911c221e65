"""Detection of the installed PySpark's features, and stand-ins for missing ones.

PySpark 4.0 to 4.3 differ in these points, and no other module checks the version:

- 4.1 adds filter pushdown, a streaming writer of Arrow batches, functions on Arrow arrays, and KLL
  sketches;
- 4.2 adds admission control: it passes `start` and a limit to `latestOffset`, calls
  `reportLatestOffset`, and announces `Trigger.AvailableNow`.  For earlier versions,
  `stream.following` tracks the position and applies the limits.

Stand-ins are never passed to Spark.  They are base classes, or are used only within Leveret.
"""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource, functions
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from leveret.spark.java import VERSION_MAX

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column

#: Whether Spark passes a batch's start and limit to `latestOffset` (4.2).
HAS_ADMISSION_CONTROL: Final = (
    "start" in inspect.signature(datasource.DataSourceStreamReader.latestOffset).parameters
)

#: The last Java on which Spark runs.  Hadoop and Arrow in Spark 4.0 and 4.1 do not support Java 24.
JAVA_MAX: Final = VERSION_MAX if HAS_ADMISSION_CONTROL else 21

#: Whether Spark passes a query's filters to a batch reader (4.1).
HAS_FILTERS: Final = hasattr(datasource.DataSourceReader, "pushFilters")

#: Whether Spark has KLL sketches of integers (4.1).
HAS_SKETCHES: Final = hasattr(functions, "kll_sketch_agg_bigint")

#: Whether the checkpoint classes are in the package of 4.1 and later.
_HAS_CHECKPOINTING: Final = HAS_FILTERS

_STREAMING: Final = "org.apache.spark.sql.execution.streaming"

#: The Java class that writes checkpoints by plain renames.
CHECKPOINTS_BY_RENAMES: Final = (
    f"{_STREAMING}.{'checkpointing.' if _HAS_CHECKPOINTING else ''}"
    "FileSystemBasedCheckpointFileManager"
)

try:
    from pyspark.sql.datasource import (
        EqualNullSafe,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
    )
except ImportError:

    class Filter:  # type: ignore[no-redef]
        """A stand-in for a filter, which this version of Spark does not push."""

    EqualNullSafe = EqualTo = GreaterThan = GreaterThanOrEqual = Filter  # type: ignore[misc,assignment]
    In = LessThan = LessThanOrEqual = Filter  # type: ignore[misc,assignment]

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:

    class DataSourceStreamArrowWriter(  # type: ignore[no-redef,misc]
        DataSourceArrowWriter, DataSourceStreamWriter
    ):
        """A streaming writer of Arrow batches for Spark 4.0.

        Its workers pass Arrow batches to every `DataSourceArrowWriter`, also in streaming queries.
        """


try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
except ImportError:

    class ReadLimit:  # type: ignore[no-redef]
        """The limit of a micro-batch."""

    class ReadAllAvailable(ReadLimit):  # type: ignore[no-redef]
        """No limit."""

    @dataclass
    class ReadMinRows(ReadLimit):  # type: ignore[no-redef]
        """A minimum number of rows."""

        min_rows: int

    @dataclass
    class ReadMaxRows(ReadLimit):  # type: ignore[no-redef]
        """A maximum number of rows."""

        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):  # type: ignore[no-redef]
        """A maximum number of bytes."""

        max_bytes: int

    class SupportsTriggerAvailableNow:  # type: ignore[no-redef]
        """A reader that Spark notifies of `Trigger.AvailableNow`."""


__all__ = [
    "CHECKPOINTS_BY_RENAMES",
    "HAS_ADMISSION_CONTROL",
    "HAS_FILTERS",
    "HAS_SKETCHES",
    "JAVA_MAX",
    "DataSourceStreamArrowWriter",
    "EqualNullSafe",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "LessThan",
    "LessThanOrEqual",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "arrow_udf",
    "offset_in_progress",
    "quantile",
    "sketch",
]


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark expects of a source's batches, with times in UTC."""
    # 4.2 replaced `timestamp_utc`, which is true by default, with `timezone`.
    if "timezone" in _ARROW_PARAMETERS:
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


def arrow_udf(function: Callable[..., pa.Array], kind: str) -> Callable[..., Column]:
    """Return a Spark function of text columns, made from a function of Arrow arrays.

    `kind` is the type of its result.  For Spark 4.0, which uses pandas series, arrays are
    converted.
    """
    if hasattr(functions, "arrow_udf"):
        made: Callable[..., Column] = functions.arrow_udf(function, kind)
        return made
    import pandas as pd  # type: ignore[import-untyped]
    import pyarrow as pa
    from pyspark.sql.pandas.functions import pandas_udf

    is_struct = kind.startswith("struct<")

    def on_series(*columns: pd.Series) -> Any:
        found = function(*(pa.Array.from_pandas(one, type=pa.string()) for one in columns))
        if not is_struct:
            return found.to_pandas()
        fields = [field.name for field in found.type]
        return pd.DataFrame({name: found.field(name).to_pandas() for name in fields})

    # Spark derives the kind of the function from its annotations.
    result = pd.DataFrame if is_struct else pd.Series
    on_series.__annotations__ = {"columns": pd.Series, "return": result}
    converted: Callable[..., Column] = pandas_udf(on_series, kind)  # type: ignore[call-overload]
    return converted


def sketch(values: Column | str, fractions: Sequence[float]) -> Column:
    """Return an aggregate of integers from which `quantile` returns the quantiles of `fractions`.

    With `HAS_SKETCHES` it is a KLL sketch, which can be merged.
    """
    if HAS_SKETCHES:
        return functions.kll_sketch_agg_bigint(values)
    return functions.percentile_approx(values, list(fractions))


def quantile(aggregate: Column, fractions: Sequence[float], place: int) -> Column:
    """Return the quantile at `fractions[place]` from the aggregate of `sketch`."""
    if HAS_SKETCHES:
        return functions.kll_sketch_get_quantile_bigint(aggregate, functions.lit(fractions[place]))
    return functions.element_at(aggregate, place + 1)


def offset_in_progress(text: str | None) -> dict[str, object] | None:
    """Parse an offset in a query's progress, or return None if it is not an object.

    Before 4.2, offsets in `query.lastProgress` are Python literals instead of JSON.
    """
    for parse in (json.loads, ast.literal_eval):
        try:
            found = parse(text or "")
        except (ValueError, SyntaxError):
            continue
        return found if isinstance(found, dict) else None
    return None


_ARROW_PARAMETERS: Final = inspect.signature(to_arrow_schema).parameters
