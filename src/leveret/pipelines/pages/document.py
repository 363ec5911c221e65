"""A job's page: one HTML file that holds its data, its script and its style, and loads nothing.

Invariant: data from messages is only in the JSON, in which each `<` is escaped, and the
script shows it as text; the title, which may have a stream's name, is escaped.  The page's policy
allows this script and this style by their hashes, and nothing else.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from leveret.pages.assets import hash_source, text_of
from leveret.pipelines.pages.joining import joined

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
<noscript><p>This page shows its data by JavaScript, which is switched off. The job prints the same
figures.</p></noscript>
<script type="application/json" id="data">{data}</script>
<script type="module">{script}</script>
</body>
</html>
"""


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
    """Return JSON for embedding in an HTML script: ASCII, and without `<`."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e")


def write_page(path: str | Path, page: str) -> None:
    """Write a page to a file.  Raises: OSError."""
    Path(path).write_text(page, encoding="utf-8")
