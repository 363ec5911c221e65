"""Modules of JavaScript joined into one script, because a job's page loads nothing.

A module is preceded by those that it imports, each once, without its `import` lines and without
the word `export`.  So the names at the top of all modules are of one scope and differ.  Vendored
modules keep a scope of their own.

Invariant: the result has no `</script` and no `<!--`, which would end or change a script in HTML.
"""

from __future__ import annotations

import posixpath
import re
from functools import cache
from typing import Final

from leveret.pages.assets import text_of

_IMPORT: Final = re.compile(r'^import (?P<names>[^;]+?) from "(?P<place>\.[^"]+)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function|const|class)\b)", re.MULTILINE)
_VENDOR_DEFAULT: Final = re.compile(r"export default (\w+);\s*$")
_VENDOR_NAMED: Final = re.compile(r"export\s*\{([^}]*)\};?\s*$")

_VENDOR: Final = "vendor/"


@cache
def joined(entry: str) -> str:
    """Return a module of the pages (`jobs/report.js`) and all its imports as one script.

    Raises: ValueError for modules that cannot be joined; OSError.
    """
    joining = _Joining()
    joining.add(entry)
    script = joining.script()
    if re.search(r"</script|<!--", script, re.IGNORECASE):
        raise ValueError(f"{entry}: a module has </script or <!-- in it")
    return script


class _Joining:
    """Modules in the order in which they run, and the names taken from vendored ones."""

    def __init__(self) -> None:
        self._parts: dict[str, str] = {}
        self._taken: dict[str, set[str]] = {}

    def add(self, place: str) -> None:
        """Add a module after its imports, unless it was already added."""
        if place in self._parts:
            return
        text = text_of(place)
        for found in _IMPORT.finditer(text):
            wanted = posixpath.normpath(posixpath.join(posixpath.dirname(place), found["place"]))
            if wanted.startswith(_VENDOR):
                self._take(wanted, found["names"])
            else:
                self.add(wanted)
        bare = _EXPORT.sub("", _IMPORT.sub("", text))
        if re.search(r"^(import|export)\b", bare, re.MULTILINE):
            raise ValueError(f"{place}: an import or export of another form than the pages use")
        self._parts[place] = bare

    def _take(self, place: str, names: str) -> None:
        if names.startswith("{"):
            self._taken.setdefault(place, set()).update(re.findall(r"\w+", names))
        else:
            self._taken.setdefault(place, set()).add(f"default: {names}")

    def script(self) -> str:
        """Return all modules."""
        vendored = [
            f"const {{ {', '.join(sorted(names))} }} = {_scoped(place)};\n"
            for place, names in sorted(self._taken.items())
        ]
        return "\n".join((*vendored, *self._parts.values()))


def _scoped(place: str) -> str:
    """Return a vendored module as an expression: the object of its exports."""
    text = text_of(place)
    default = _VENDOR_DEFAULT.search(text)
    if default is not None:
        return f"(() => {{\n{text[: default.start()]}\nreturn {{ default: {default[1]} }};\n}})()"
    named = _VENDOR_NAMED.search(text)
    if named is None:
        raise ValueError(f"{place}: it has no export at its end")
    pairs = [name.split(" as ") for name in named[1].split(",")]
    given = ", ".join(f"{pair[-1].strip()}: {pair[0].strip()}" for pair in pairs)
    return f"(() => {{\n{text[: named.start()]}\nreturn {{ {given} }};\n}})()"
