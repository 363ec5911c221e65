"""The kind of an error: its text without the parts that differ from letter to letter.

These parts are ids, addresses, paths, times, numbers and quoted text.  Each is replaced by a word
in angle brackets, and a list of them by one word.  A text may be cut, as in `no order 'a-1`: a
quotation without an end, a part of a UUID and the word before a final ellipsis differ too.

The patterns are Java's and the replacements Spark's, so that Spark computes kinds without Python.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import Column

#: The words of a kind that count; longer texts are mostly data.
KIND_WORDS: Final = 24

_BEFORE: Final = "(?<![0-9A-Za-z])"
_AFTER: Final = "(?![0-9A-Za-z])"

#: Quoted text, which may be cut.  An apostrophe inside a word quotes nothing.
_QUOTED: Final = r"(?<!\w)'[^']*(?:'(?!\w)|$)|(?<!\w)\"[^\"]*(?:\"|$)|`[^`]*(?:`|$)"

_URL: Final = r"(?<!\w)[A-Za-z][A-Za-z0-9+.-]*://[^\s\"'<>)\]]*[^\s\"'<>)\].,:;]"

#: An IPv4 address, with or without a port; a host with a port; an e-mail address.
_ADDRESS: Final = (
    r"/?(?<![0-9.])[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?::[0-9]+)?(?![0-9])"
    r"|(?<![\w.])[\w-]+(?:\.[\w-]+){2,}:[0-9]+"
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
)

#: A MAC address, or an IPv6 address in full.
_COLONS: Final = r"(?<![\w:])(?:[0-9a-fA-F]{1,4}:){5,7}[0-9a-fA-F]{1,4}(?![\w:])"

#: `Mon Dec 05 10:51:59 2005`, or less of it.
_DATE_IN_WORDS: Final = (
    rf"{_BEFORE}(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]*,? +)?"
    r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]* +"
    rf"[0-9]{{1,2}}{_AFTER},?(?: +[0-9]{{4}}{_AFTER})?"
    rf"(?: +[0-9]{{1,2}}:[0-9]{{2}}:[0-9]{{2}}(?:[.,][0-9]+)?)?(?: +[0-9]{{4}}{_AFTER})?"
)

#: `2005-12-05T10:51:59.5Z`, or less of it.
_DATE: Final = (
    rf"{_BEFORE}[0-9]{{2,4}}([-/.])[0-9]{{1,2}}\1[0-9]{{1,4}}"
    r"(?:[ T_.-]?[0-9]{2}[:.][0-9]{2}[:.][0-9]{2}(?:[.,][0-9]+)?(?:Z|[+-][0-9]{2}:?[0-9]{2})?)?"
    r"(?![0-9])"
)

#: A UUID, which may be cut.
_UUID: Final = rf"{_BEFORE}[0-9a-fA-F]{{8}}-[0-9a-fA-F]{{1,4}}(?:-[0-9a-fA-F]{{1,12}})*{_AFTER}"

#: `/etc/passwd`, `C:\Temp\x`, `../x` and `a/b/c`, but not `and/or`.
_PATH: Final = (
    r"(?<![\w<>.~-])(?:[A-Za-z]:|\.{1,2}|~)?(?:[/\\][\w.,$@%+~=#:-]*[\w$@%+~=#-])+/?"
    r"|(?<![\w<>.-])[\w.$@%+~-]+(?:/[\w.$@%+~-]+){2,}/?"
)

#: `0x1f`, Java's `Object@1f3a`, and digests.
_HEX: Final = (
    r"0x[0-9a-fA-F]+|(?<=\w@)[0-9a-f]{4,8}(?!\w)"
    rf"|{_BEFORE}(?=[0-9]*[a-fA-F])(?=[a-fA-F]*[0-9])[0-9a-fA-F]{{8,}}{_AFTER}"
)

#: Letters between digits, as in random names.
_RANDOM: Final = rf"{_BEFORE}(?=[A-Za-z]*[0-9]+[A-Za-z]+[0-9])[0-9A-Za-z]{{5,}}{_AFTER}"

#: Numbers, versions and spans.  The first dash is a sign unless it follows a word.
_NUMBER: Final = r"(?:(?<![\w>])-|(?<=_)-)?[0-9]+(?:[.,:_-][0-9]+)*"

#: The parts that differ, and their replacements, applied in this order.
_VARIABLE: Final = (
    (_QUOTED, "<text>"),
    (r"\s\S*(?:\.\.\.|\u2026)$", " ..."),
    (_URL, "<url>"),
    (_ADDRESS, "<address>"),
    (_DATE_IN_WORDS, "<time>"),
    (_DATE, "<time>"),
    (_UUID, "<id>"),
    (_COLONS, "<address>"),
    (_PATH, "<path>"),
    (_HEX, "<hex>"),
    (_RANDOM, "<id>"),
    (_NUMBER, "<n>"),
    (r"\s+", " "),
    # Lists.
    (r"(?<!\S)(\S*<[a-z]+>\S*?)(?:[,;]? \1)+(?!\w)", "$1"),
)


def fingerprint(column: str) -> Column:
    """Return 12 hexadecimal digits that identify the kind of an error, or `""` without an error."""
    from pyspark.sql import functions as f

    digits = f.substring(f.sha2(error_kind(column), 256), 1, 12)
    return f.when(f.col(column) == "", "").otherwise(digits)


def error_kind(column: str) -> Column:
    """Return an error's text without the parts that differ from letter to letter."""
    from pyspark.sql import functions as f

    text = f.col(column)
    for pattern, word in _VARIABLE:
        text = f.regexp_replace(text, pattern, word)
    return f.substring_index(f.trim(text), " ", KIND_WORDS)
