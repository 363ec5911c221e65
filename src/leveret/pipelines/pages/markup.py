"""HTML that cannot be injected into: elements from data, escaped where they are made.

Invariant: text and attributes are escaped by `element`, and only what `element` returned, or
`Markup` around a constant of the source, is taken as it is.
"""

from __future__ import annotations

import html
import re
from typing import Final

#: What HTML has no place for, escaped or not.
_CONTROL: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

_VOID: Final = frozenset({"meta", "br"})

Attribute = str | int | float


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def element(
    name: str, attributes: dict[str, Attribute] | None = None, /, *children: object
) -> Markup:
    """Return an element; children that are no `Markup` are shown as text."""
    shown = "".join(f' {key}="{escape(value)}"' for key, value in (attributes or {}).items())
    if name in _VOID:
        return Markup(f"<{name}{shown}>")
    inner = "".join(c if isinstance(c, Markup) else escape(c) for c in children)
    return Markup(f"<{name}{shown}>{inner}</{name}>")


def escape(value: object) -> str:
    """Return a value as text in HTML, also within quotes; control characters become visible."""
    return html.escape(_CONTROL.sub("\ufffd", str(value)), quote=True)


def document(title: str, style: str, *body: Markup) -> str:
    """Return a whole page that loads nothing: its policy forbids it to."""
    policy = "default-src 'none'; style-src 'unsafe-inline'"
    head = element(
        "head",
        None,
        element("meta", {"charset": "utf-8"}),
        element("meta", {"http-equiv": "Content-Security-Policy", "content": policy}),
        element("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}),
        element("title", None, title),
        element("style", None, Markup(style)),
    )
    page = element("html", {"lang": "en"}, head, element("body", None, *body))
    return f"<!doctype html>\n{page}\n"
