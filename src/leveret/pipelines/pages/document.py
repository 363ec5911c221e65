"""A job's page: one HTML file with its data, its script and its style, which loads nothing else.

A page has one script, in which the JavaScript modules are joined: each once, after the modules that
it imports, without `import` lines and without the word `export`.  The top-level names of all
modules therefore share one scope and must differ.  A vendored module has its own scope.

Invariants: data from messages is only in the JSON, in which each `<` is escaped, and the script
shows it as text.  The title, which may contain a stream's name, is escaped.  The page's content
security policy allows only this script and this style, by their hashes.  A script contains no
`</script` and no `<!--`, which would end or change it in HTML.
"""

from __future__ import annotations

import html
import json
import posixpath
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from leveret.pages.assets import hash_source, text_of

_STYLES: Final = ("vendor/uPlot.css", "common/style.css", "jobs/jobs.css")

#: The characters that HTML does not allow, even escaped.
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<div id="page"></div>
<noscript><p>This page needs JavaScript to show its data. The job prints the same figures.</p>
</noscript>
<script type="application/json" id="data">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""

_IMPORT: Final = re.compile(r'^import (?P<names>[^;]+?) from "(?P<place>\.[^"]+)";\n', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:function|const|class)\b)", re.MULTILINE)
_VENDOR_DEFAULT: Final = re.compile(r"export default (\w+);\s*$")
_VENDOR_NAMED: Final = re.compile(r"export\s*\{([^}]*)\};?\s*$")

_VENDOR: Final = "vendor/"


def job_page(job: str, title: str, data: Mapping[str, object]) -> str:
    """Return the page of a job, whose script is `jobs/<job>.js`."""
    script = joined(f"jobs/{job}.js")
    style = "\n".join(text_of(name) for name in _STYLES)
    policy = (
        f"default-src 'none'; script-src {hash_source(script)}; style-src {hash_source(style)}; "
        "base-uri 'none'; form-action 'none'"
    )
    return _PAGE.format(
        policy=policy,
        title=html.escape(_CONTROL.sub("\ufffd", title)),
        style=style,
        data=json_text({"job": job, "title": title, **data}),
        script=script,
    )


def json_text(data: object) -> str:
    """Return JSON to embed in an HTML script: in ASCII, without `<` and `>`."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e")


def write_page(path: str | Path, page: str) -> None:
    """Write a page to a file.  Raises: OSError."""
    Path(path).write_text(page, encoding="utf-8")


# -- scripts ---------------------------------------------------------------------------------------


@cache
def joined(entry: str) -> str:
    """Return a module, such as `jobs/report.js`, and all its imports as one script.

    Raises: ValueError for modules that cannot be joined; OSError.
    """
    joining = _Joining()
    joining.add(entry)
    script = joining.script()
    if re.search(r"</script|<!--", script, re.IGNORECASE):
        raise ValueError(f"{entry}: a module has </script or <!-- in it")
    return script


class _Joining:
    """Modules in the order in which they run, and the names imported from vendored modules."""

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
        """Return all modules, joined."""
        vendored = [
            f"const {{ {', '.join(sorted(names))} }} = {_scoped(place)};\n"
            for place, names in sorted(self._taken.items())
        ]
        return "\n".join((*vendored, *self._parts.values()))


def _scoped(place: str) -> str:
    """Return a vendored module as an expression that evaluates to its exports."""
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
