"""Leveret's data source for PySpark alone: what the package `leveret-spark` has for `leveret`.

The modules are in the directory `_leveret_spark` next to this file, under the names that they have
in the package `leveret`, so that a reader which a driver with either package has pickled loads on
an executor with the other.  The two packages share no file.  Where both are installed in one
directory, Python finds the directory `leveret` before this file, and this package is not used.

Without `mypy_extensions` and `xxhash`, small stand-ins are used for them.
"""

from __future__ import annotations

import importlib
import os
import sys

__version__ = "0"
__path__ = [os.path.join(os.path.dirname(__file__), "_leveret_spark")]  # noqa: PTH118, PTH120  in a zip


class _Absent:
    """Says where the modules are that no other finder has found."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> None:
        """Refuse a module of the package `leveret`.  Raises: ModuleNotFoundError."""
        if name.startswith("leveret."):
            raise ModuleNotFoundError(f"No module named {name!r}: {_WHERE}", name=name)


_WHERE = (
    f"this is leveret-spark {__version__} in {__file__}, which has the data source alone. "
    "The package leveret has the rest."
)

sys.meta_path.append(_Absent)

for _name in ("mypy_extensions", "xxhash"):
    try:
        importlib.import_module(_name)
    except ImportError:
        sys.modules[_name] = importlib.import_module(f"leveret.stand_ins.{_name}")


def __getattr__(name: str) -> object:
    """Say where the names of the package `leveret` are."""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}: {_WHERE}")
