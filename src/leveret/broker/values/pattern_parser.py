"""Reads a regular expression into a tree; see `patterns` for what is supported.

Invariants: groups nest at most `PATTERN_DEPTH_MAX` deep, so that no later walk over the tree can
exhaust a stack.
"""

from __future__ import annotations

import unicodedata
from typing import ClassVar, Final, final

from mypy_extensions import i64

from leveret.errors import PreconditionFailed
from leveret.limits import PATTERN_DEPTH_MAX, PATTERN_REPEATS_MAX

#: The kinds of nodes.
SET: Final = 0
SEQUENCE: Final = 1
ALTERNATIVES: Final = 2
REPEAT: Final = 3
ASSERTION: Final = 4
LOOK: Final = 5
ATOMIC: Final = 6

#: What `_group_kind` returns beside a lookaround's number.
_PLAIN: Final = -1
_OPTIONS: Final = -2
_ATOMIC: Final = -3

_LAST: Final = 0x10FFFF
_DIGITS: Final = [(48, 57)]
_WORDS: Final = [(48, 57), (65, 90), (95, 95), (97, 122)]
_SPACES: Final = [(9, 13), (32, 32)]
_HORIZONTAL: Final = [
    (9, 9), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E), (0x2000, 0x200A),
    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000),
]  # fmt: skip
_VERTICAL: Final = [(10, 13), (0x85, 0x85), (0x2028, 0x2029)]
#: The escapes that stand for a class; a capital letter stands for all other characters.
_CLASSES: Final[dict[str, list[tuple[int, int]]]] = {
    "d": _DIGITS,
    "w": _WORDS,
    "s": _SPACES,
    "h": _HORIZONTAL,
    "v": _VERTICAL,
}
#: Ranges of a set that a character is compared with in one look of a walk.
_RANGES_PER_LOOK: Final = 8
#: POSIX classes as they stand in brackets: `[[:alpha:]]`.
_POSIX: Final[dict[str, list[tuple[int, int]]]] = {
    "alnum": [(48, 57), (65, 90), (97, 122)],
    "alpha": [(65, 90), (97, 122)],
    "ascii": [(0, 127)],
    "blank": [(9, 9), (32, 32)],
    "cntrl": [(0, 31), (127, 127)],
    "digit": [(48, 57)],
    "graph": [(33, 126)],
    "lower": [(97, 122)],
    "print": [(32, 126)],
    "punct": [(33, 47), (58, 64), (91, 96), (123, 126)],
    "space": [(9, 13), (32, 32)],
    "upper": [(65, 90)],
    "word": [(48, 57), (65, 90), (95, 95), (97, 122)],
    "xdigit": [(48, 57), (65, 70), (97, 102)],
}
_CONTROLS: Final = {"a": 7, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9}
_HEXADECIMAL: Final = "0123456789abcdefABCDEF"
_OCTAL: Final = "01234567"

#: Unicode's general categories: their first letters, and the second ones of each.
_CATEGORIES: Final = {
    "C": "cfnos",
    "L": "lmotu",
    "M": "cen",
    "N": "dlo",
    "P": "cdefios",
    "S": "ckmo",
    "Z": "lps",
}

#: The names that `\\p{…}` takes: Unicode's general categories, `L&` for letters with a case, and
#: PCRE's own.  Each is the beginnings of the categories that it stands for.
_PROPERTIES: Final[dict[str, tuple[str, ...]]] = {
    **{
        first + second: (first + second,)
        for first, seconds in _CATEGORIES.items()
        for second in ("", *seconds)
    },
    "L&": ("Ll", "Lt", "Lu"),
    "Any": ("",),
    "Xan": ("L", "N"),
    "Xwd": ("L", "N", "Mn", "Pc"),
}
#: The categories of one case, which are equal where cases are folded.
_CASES: Final = (("Ll",), ("Lt",), ("Lu",))


@final
class CharacterSet:
    """Ranges of characters and Unicode's properties, or all others.

    With `fold`, upper and lower case are one.
    """

    def __init__(self, ranges: list[tuple[int, int]], negated: bool, fold: bool) -> None:
        self._ranges = ranges
        self._negated = negated
        self._fold = fold
        #: Beginnings of categories, and whether all others are meant.
        self._properties: list[tuple[tuple[str, ...], bool]] = []
        #: Looks that a comparison with it adds to a walk: none for a set of a few ranges.
        self.looks: i64 = len(ranges) * (3 if fold else 1) // _RANGES_PER_LOOK

    def add_properties(self, properties: list[tuple[tuple[str, ...], bool]]) -> None:
        """Add characters by their categories."""
        self._properties += properties
        self.looks += len(properties) * (3 if self._fold else 1)

    def has(self, code: int) -> bool:
        """Tell whether the character of that code is in the set."""
        found = self._in(code)
        if not found and self._fold:
            character = chr(code)
            for other in (character.lower(), character.upper()):
                # RabbitMQ folds bytes, so the ASCII upper case of a dotless i does not count.
                one = len(other) == 1 and other.isascii() == character.isascii()
                if one and self._in(ord(other)):
                    found = True
        return found != self._negated

    def _in(self, code: int) -> bool:
        for first, last in self._ranges:
            if first <= code <= last:
                return True
        if self._properties:
            category = unicodedata.category(chr(code))
            for beginnings, others in self._properties:
                if category.startswith(beginnings) != others:
                    return True
        return False


@final
class Node:
    """A part of a pattern.

    `least` and `most` bound a repeat (`most` -1: no bound), which is `lazy` if it prefers less;
    `least` is an assertion's letter, and of a lookaround 1 for a negated and 2 for one that looks
    back, added.
    """

    def __init__(self, kind: int, children: list[Node], least: int = 0, most: int = 0) -> None:
        self.kind = kind
        self.children = children
        self.least = least
        self.most = most
        self.lazy = False
        self.characters: CharacterSet | None = None
        #: Whether it can match nothing, and whether it repeats such a part without an end.
        self.may_be_empty: bool = self._may_be_empty()
        self.repeats_nothing: bool = kind == REPEAT and most < 0 and children[0].may_be_empty
        if kind != LOOK and any(child.repeats_nothing for child in children):
            self.repeats_nothing = True

    def _may_be_empty(self) -> bool:
        parts = [child.may_be_empty for child in self.children]
        if self.kind == ALTERNATIVES:
            return any(parts)
        if self.kind == REPEAT:
            return self.least == 0 or parts[0]
        return self.kind != SET and (self.kind in (ASSERTION, LOOK) or all(parts))


@final
class PatternParser:
    """Reads one pattern."""

    #: `\\A` and `^`, `\\z`, `\\Z` and `$`, `\\b`, `\\B`.
    ASSERTIONS: ClassVar[str] = "AzZbB"

    def __init__(self, text: str) -> None:
        self._text = _unquoted(text)
        self._place = 0
        self._depth = 0
        self._fold = False
        #: Whether repeats prefer less and `?` has them prefer more.
        self._lazy = False

    def parse(self) -> Node:
        """Return the tree of the whole pattern.  Raises: PreconditionFailed (406)."""
        node = self._alternatives()
        if self._place < len(self._text):
            raise self._bad("unmatched closing parenthesis")
        return node

    def _bad(self, why: str) -> PreconditionFailed:
        return PreconditionFailed(
            f"not a valid regular expression: '{self._text}': {why} at {self._place}"
        )

    def _peek(self) -> str:
        """Return the next character, empty at the end."""
        return self._text[self._place : self._place + 1]

    def _take(self, wanted: str) -> bool:
        """Pass over `wanted` where it is next; tell whether it was."""
        if self._text.startswith(wanted, self._place):
            self._place += len(wanted)
            return True
        return False

    # -- structure ---------------------------------------------------------------------------------

    def _alternatives(self) -> Node:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else Node(ALTERNATIVES, branches)

    def _sequence(self) -> Node:
        parts: list[Node] = []
        while self._peek() not in ("", "|", ")"):
            atom = self._atom()
            if atom is not None:
                parts.append(self._repeated(atom))
        return parts[0] if len(parts) == 1 else Node(SEQUENCE, parts)

    def _repeated(self, atom: Node) -> Node:
        """Return `atom` with the repeats that follow it."""
        while self._take("(?#"):
            self._comment()
        bounds = self._bounds()
        if bounds is None:
            return atom
        repeat = Node(REPEAT, [atom], bounds[0], bounds[1])
        possessive = self._take("+")
        if not possessive:
            repeat.lazy = self._take("?") != self._lazy
        if self._bounds() is not None:
            raise self._bad("a repeat of a repeat")
        return self._atomic(repeat) if possessive else repeat

    def _bounds(self) -> tuple[int, int] | None:
        """Return the least and most of a repeat that is next (most -1: no bound)."""
        if self._take("*"):
            return (0, -1)
        if self._take("+"):
            return (1, -1)
        if self._take("?"):
            return (0, 1)
        end = self._text.find("}", self._place)
        if self._peek() != "{" or end < 0:
            return None
        least, comma, most = self._text[self._place + 1 : end].partition(",")
        least, most = least.strip(" "), most.strip(" ")
        if not (least or most) or any(one and not _is_number(one) for one in (least, most)):
            return None  # not a repeat: the brace stands for itself
        lower = int(least) if least else 0
        upper = lower if not comma else int(most) if most else -1
        if max(lower, upper) > PATTERN_REPEATS_MAX or -1 < upper < lower:
            raise self._bad(
                f"the bounds of a repeat are out of order or above {PATTERN_REPEATS_MAX}"
            )
        self._place = end + 1
        return (lower, upper)

    def _atom(self) -> Node | None:
        """Return the next part, None for what only sets an option."""
        character = self._peek()
        if character == "(":
            return self._group()
        if character == "[":
            return self._bracket()
        if character == "\\":
            return self._escape()
        if character in ("*", "+", "?"):
            raise self._bad("nothing to repeat")
        self._place += 1
        if character == "^":
            return Node(ASSERTION, [], ord("A"))
        if character == "$":
            return Node(ASSERTION, [], ord("Z"))
        if character == ".":
            return self._set([(10, 10)], True)
        return self._set([(ord(character), ord(character))], False)

    def _set(self, ranges: list[tuple[int, int]], negated: bool) -> Node:
        node = Node(SET, [])
        node.characters = CharacterSet(ranges, negated, self._fold)
        return node

    def _group(self) -> Node | None:
        self._depth += 1
        if self._depth > PATTERN_DEPTH_MAX:
            raise self._bad(f"groups are nested more than {PATTERN_DEPTH_MAX} deep")
        fold, lazy = self._fold, self._lazy
        self._place += 1
        kind = _PLAIN
        if self._take("*"):
            raise self._bad("verbs are not supported")
        if self._take("?"):
            if self._take("#"):
                self._comment()
                self._depth -= 1
                return None
            kind = self._group_kind()
            if kind == _OPTIONS:
                self._depth -= 1
                return None
        inner = self._alternatives()
        if not self._take(")"):
            raise self._bad("missing closing parenthesis")
        self._depth -= 1
        self._fold, self._lazy = fold, lazy
        if kind == _ATOMIC:
            return self._atomic(inner)
        return inner if kind == _PLAIN else Node(LOOK, [inner], kind)

    def _atomic(self, inner: Node) -> Node:
        if inner.repeats_nothing:
            raise self._bad("an atomic group has an unlimited repeat of what can be empty")
        return Node(ATOMIC, [inner])

    def _comment(self) -> None:
        end = self._text.find(")", self._place)
        if end < 0:
            raise self._bad("missing closing parenthesis")
        self._place = end + 1

    def _group_kind(self) -> int:
        """Read what stands behind `(?`.

        Return a lookaround's number, or `_ATOMIC`, `_OPTIONS` (they stand alone) or `_PLAIN`.
        """
        for mark, look in (("=", 0), ("!", 1), ("<=", 2), ("<!", 3), (">", _ATOMIC)):
            if self._take(mark):
                return look
        # `|` numbers the groups of each alternative alike; groups have no numbers here.
        if self._take(":") or self._take("|"):
            return _PLAIN
        for opening, closing in (("P<", ">"), ("<", ">"), ("'", "'")):
            if self._take(opening):
                end = self._text.find(closing, self._place)
                if end < 0 or not self._text[self._place : end].isidentifier():
                    raise self._bad("the name of a group is not valid")
                self._place = end + 1
                return _PLAIN
        return self._options()

    def _options(self) -> int:
        """Read options up to `:` or `)`.

        `i` folds cases, `U` exchanges greedy and lazy; the other supported ones have no effect: a
        name has no line ends (`s`, `m`), and groups have no numbers (`n`, `J`).
        """
        if self._take("^"):
            self._fold = False
        on = True
        while True:
            option = self._peek()
            self._place += 1
            if option == "-":
                on = False
            elif option == "i":
                self._fold = on
            elif option == "U":
                self._lazy = on
            elif option == ":":
                return _PLAIN
            elif option == ")":
                return _OPTIONS
            elif not option or option not in "smnJ":
                raise self._bad("this kind of group or option is not supported")

    # -- characters --------------------------------------------------------------------------------

    def _escape(self) -> Node:
        """Return what a backslash and what follows it stand for, outside brackets."""
        self._place += 1
        letter = self._peek()
        if letter and letter in self.ASSERTIONS:
            self._place += 1
            return Node(ASSERTION, [], ord(letter))
        if letter == "G":
            # Where the search begins: a name is searched once, from its beginning.
            self._place += 1
            return Node(ASSERTION, [], ord("A"))
        if letter == "K":
            # It sets where the match begins, which nothing here asks for.
            self._place += 1
            return Node(SEQUENCE, [])
        if letter == "N" and not self._text.startswith("{", self._place + 1):
            self._place += 1
            return self._set([(10, 10)], True)
        if letter in ("p", "P"):
            node = self._set([], False)
            self._add_properties(node, [self._property()])
            return node
        ranges, negated = self._escaped()
        return self._set(ranges, negated)

    def _add_properties(self, node: Node, properties: list[tuple[tuple[str, ...], bool]]) -> None:
        assert node.characters is not None
        node.characters.add_properties(properties)

    def _property(self) -> tuple[tuple[str, ...], bool]:
        """Return the categories that a property stands for, and whether it means all others."""
        others = self._peek() == "P"
        self._place += 1
        if self._take("{"):
            end = self._text.find("}", self._place)
            name = self._text[self._place : end] if end >= 0 else ""
            self._place += len(name) + 1
            if name.startswith("^"):
                name = name[1:]
                others = not others
        else:
            name = self._peek()
            self._place += 1
        found = _PROPERTIES.get(name)
        if found is None:
            raise self._bad(f"the property '{name}' is not supported, only general categories are")
        if self._fold and found in _CASES:
            found = _PROPERTIES["L&"]
        return found, others

    def _escaped(self) -> tuple[list[tuple[int, int]], bool]:
        """Return the ranges that an escape stands for, and whether it means all others."""
        letter = self._peek()
        self._place += 1
        ranges = _CLASSES.get(letter.lower())
        if ranges is not None:
            return ranges, letter.isupper()
        code = self._escaped_code(letter)
        return [(code, code)], False

    def _escaped_code(self, letter: str) -> int:
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter == "x":
            return self._hexadecimal()
        if letter and letter in _OCTAL:
            return self._octal()
        if letter == "c" and " " <= self._peek() <= "~":
            self._place += 1
            return ord(self._text[self._place - 1].upper()) ^ 64
        if not letter or (letter.isascii() and letter.isalnum()):
            raise self._bad(f"the escape '\\{letter}' is not supported")
        return ord(letter)

    def _octal(self) -> int:
        """Return the code that `0`, `0d`, `0dd` or `ddd` names; the first digit was read."""
        begin = self._place - 1
        digits = ""
        for character in self._text[begin : begin + 3]:
            if character not in _OCTAL:
                break
            digits += character
        if digits[0] != "0" and len(digits) < 3:
            raise self._bad("back references are not supported")
        self._place = begin + len(digits)
        return int(digits, 8)

    def _hexadecimal(self) -> int:
        """Return the code that `hh` or `{h…}` names."""
        if self._take("{"):
            end = self._text.find("}", self._place)
            digits = self._text[self._place : end] if end >= 0 else ""
            after = end + 1
        else:
            digits = self._text[self._place : self._place + 2]
            after = self._place + 2
        valid = 0 < len(digits) <= 6 and all(one in _HEXADECIMAL for one in digits)
        if not valid or int(digits, 16) > _LAST:
            raise self._bad("a hexadecimal code is not valid")
        self._place = after
        return int(digits, 16)

    def _bracket(self) -> Node:
        """Return a set in brackets."""
        self._place += 1
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        properties: list[tuple[tuple[str, ...], bool]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            if not self._peek():
                raise self._bad("missing closing bracket")
            if self._text.startswith(("\\p", "\\P"), self._place):
                self._place += 1
                properties.append(self._property())
            else:
                self._bracket_item(ranges)
        self._place += 1
        node = self._set(ranges, negated)
        self._add_properties(node, properties)
        return node

    def _bracket_item(self, ranges: list[tuple[int, int]]) -> None:
        """Add a character, a range or a class to `ranges`."""
        if self._take("[:"):
            ranges += self._posix()
            return
        found = self._bracket_ranges()
        ranges += found
        single = len(found) == 1 and found[0][0] == found[0][1]
        after = self._text[self._place + 1 : self._place + 2]
        if not single or self._peek() != "-" or after in ("", "]"):
            return
        self._place += 1
        to = self._bracket_ranges()
        if len(to) != 1 or to[0][0] != to[0][1] or to[0][0] < found[0][0]:
            raise self._bad("a range of characters is out of order")
        ranges.append((found[0][0], to[0][0]))

    def _bracket_ranges(self) -> list[tuple[int, int]]:
        """Return the ranges of one character or escape in brackets."""
        character = self._peek()
        if character != "\\":
            self._place += 1
            return [(ord(character), ord(character))]
        self._place += 1
        if self._take("b"):
            return [(8, 8)]
        ranges, negated = self._escaped()
        return _others(ranges) if negated else ranges

    def _posix(self) -> list[tuple[int, int]]:
        end = self._text.find(":]", self._place)
        name = self._text[self._place : end] if end >= 0 else ""
        ranges = _POSIX.get(name.removeprefix("^"))
        if ranges is None:
            raise self._bad(f"the class '[:{name}:]' does not exist")
        self._place = end + 2
        return _others(ranges) if name.startswith("^") else ranges


def _unquoted(text: str) -> str:
    r"""Return a pattern with each character of its `\Q…\E` escaped by itself.

    A repeat behind such a literal repeats its last character.
    """
    if "\\Q" not in text and "\\E" not in text:
        return text
    parts: list[str] = []
    place = 0
    while place < len(text):
        pair = text[place : place + 2]
        if pair == "\\Q":
            end = text.find("\\E", place + 2)
            literal = text[place + 2 :] if end < 0 else text[place + 2 : end]
            parts += [one if one.isalnum() else "\\" + one for one in literal]
            place = len(text) if end < 0 else end + 2
        elif pair.startswith("\\"):
            if pair != "\\E":
                parts.append(pair)
            place += 2
        else:
            parts.append(text[place])
            place += 1
    return "".join(parts)


def _others(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return all characters that are not in `ranges`, which are in order."""
    others: list[tuple[int, int]] = []
    begin = 0
    for first, last in ranges:
        if first > begin:
            others.append((begin, first - 1))
        begin = last + 1
    others.append((begin, _LAST))
    return others


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
