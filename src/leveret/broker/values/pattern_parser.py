"""Reads a regular expression into a tree; see `patterns` for what is taken and what is refused.

Invariants: groups nest at most `PATTERN_DEPTH_MAX` deep, so that no later walk over the tree can
exhaust a stack.
"""

from __future__ import annotations

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

_LAST: Final = 0x10FFFF
_DIGITS: Final = [(48, 57)]
_WORDS: Final = [(48, 57), (65, 90), (95, 95), (97, 122)]
_SPACES: Final = [(9, 13), (32, 32)]
#: Ranges of a set that a character is compared with in one step of a walk.
_RANGES_PER_STEP: Final = 8
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
_CONTROLS: Final = {"a": 7, "e": 27, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}


@final
class CharacterSet:
    """Ranges of characters, or all others; with `fold` upper and lower case are one."""

    def __init__(self, ranges: list[tuple[int, int]], negated: bool, fold: bool) -> None:
        self._ranges = ranges
        self._negated = negated
        self._fold = fold
        #: What a look at it adds to the steps of a walk: nothing for a set of a few ranges.
        self.steps: Final[i64] = len(ranges) * (3 if fold else 1) // _RANGES_PER_STEP

    def has(self, code: int) -> bool:
        """Tell whether the character of that code is in the set."""
        found = self._in(code)
        if not found and self._fold:
            character = chr(code)
            for other in (character.lower(), character.upper()):
                if len(other) == 1 and self._in(ord(other)):
                    found = True
        return found != self._negated

    def _in(self, code: int) -> bool:
        for first, last in self._ranges:
            if first <= code <= last:
                return True
        return False


@final
class Node:
    """A part of a pattern.

    `least` and `most` bound a repeat (`most` -1: no bound); `least` is an assertion's letter, and
    of a lookaround 1 for a negated and 2 for one that looks back, added.
    """

    def __init__(self, kind: int, children: list[Node], least: int = 0, most: int = 0) -> None:
        self.kind = kind
        self.children = children
        self.least = least
        self.most = most
        self.characters: CharacterSet | None = None


@final
class PatternParser:
    """Reads one pattern."""

    #: `\\A` and `^`, `\\z`, `\\Z` and `$`, `\\b`, `\\B`.
    ASSERTIONS: ClassVar[str] = "AzZbB"

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0
        self._depth = 0
        self._fold = False

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
        bounds = self._bounds()
        if bounds is None:
            return atom
        if self._take("+"):
            raise self._bad("possessive repeats are not supported")
        self._take("?")  # lazy: which of several ways is taken makes no difference here
        if self._bounds() is not None:
            raise self._bad("a repeat of a repeat")
        return Node(REPEAT, [atom], bounds[0], bounds[1])

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
        if not _is_number(least) or (most and not _is_number(most)):
            return None  # not a repeat: the brace stands for itself
        lower = int(least)
        upper = lower if not comma else int(most) if most else -1
        if max(lower, upper) > PATTERN_REPEATS_MAX or -1 < upper < lower:
            raise self._bad(f"a repeat has bounds in order, up to {PATTERN_REPEATS_MAX},")
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
            raise self._bad(f"groups nest at most {PATTERN_DEPTH_MAX} deep,")
        fold = self._fold
        self._place += 1
        look = -1
        if self._take("*"):
            raise self._bad("verbs are not supported")
        if self._take("?"):
            if self._take("#"):
                self._comment()
                return None
            look = self._group_kind()
            if look == -2:
                self._depth -= 1
                return None
        inner = self._alternatives()
        if not self._take(")"):
            raise self._bad("missing closing parenthesis")
        self._depth -= 1
        self._fold = fold
        return inner if look < 0 else Node(LOOK, [inner], look)

    def _comment(self) -> None:
        end = self._text.find(")", self._place)
        if end < 0:
            raise self._bad("missing closing parenthesis")
        self._place = end + 1
        self._depth -= 1

    def _group_kind(self) -> int:
        """Read what stands behind `(?`.

        Return a lookaround's number, -1 for another group, -2 for options that stand alone.
        """
        for mark, look in (("=", 0), ("!", 1), ("<=", 2), ("<!", 3)):
            if self._take(mark):
                return look
        if self._take(":"):
            return -1
        for opening, closing in (("P<", ">"), ("<", ">"), ("'", "'")):
            if self._take(opening):
                end = self._text.find(closing, self._place)
                if end < 0 or not self._text[self._place : end].isidentifier():
                    raise self._bad("a group's name")
                self._place = end + 1
                return -1
        return self._options()

    def _options(self) -> int:
        """Read options up to `:` or `)`; of them only `i` changes what a name matches."""
        on = True
        while True:
            option = self._peek()
            self._place += 1
            if option == "-":
                on = False
            elif option == "i":
                self._fold = on
            elif option == ":":
                return -1
            elif option == ")":
                return -2
            elif option != "s":  # a name has no line ends, so `s` says nothing
                raise self._bad("a group of this kind is not supported")

    # -- characters --------------------------------------------------------------------------------

    def _escape(self) -> Node:
        """Return what a backslash and what follows it stand for, outside brackets."""
        self._place += 1
        letter = self._peek()
        if letter and letter in self.ASSERTIONS:
            self._place += 1
            return Node(ASSERTION, [], ord(letter))
        if letter == "Q":
            return self._quoted()
        ranges, negated = self._escaped()
        return self._set(ranges, negated)

    def _quoted(self) -> Node:
        """Return the literal between backslash Q and backslash E."""
        begin = self._place + 1
        end = self._text.find("\\E", begin)
        literal = self._text[begin:] if end < 0 else self._text[begin:end]
        self._place = len(self._text) if end < 0 else end + 2
        return Node(SEQUENCE, [self._set([(ord(c), ord(c))], False) for c in literal])

    def _escaped(self) -> tuple[list[tuple[int, int]], bool]:
        """Return the ranges that an escape stands for, and whether it means all others."""
        letter = self._peek()
        self._place += 1
        if letter in ("d", "D"):
            return _DIGITS, letter == "D"
        if letter in ("w", "W"):
            return _WORDS, letter == "W"
        if letter in ("s", "S"):
            return _SPACES, letter == "S"
        code = self._escaped_code(letter)
        return [(code, code)], False

    def _escaped_code(self, letter: str) -> int:
        if letter in _CONTROLS:
            return _CONTROLS[letter]
        if letter == "x":
            return self._hexadecimal()
        if letter == "0":
            return 0
        if not letter or (letter.isascii() and letter.isalnum()):
            raise self._bad(f"the escape '\\{letter}' is not supported")
        return ord(letter)

    def _hexadecimal(self) -> int:
        """Return the code that `hh` or `{h…}` names."""
        if self._take("{"):
            end = self._text.find("}", self._place)
            digits = self._text[self._place : end] if end >= 0 else ""
            after = end + 1
        else:
            digits = self._text[self._place : self._place + 2]
            after = self._place + 2
        if not digits or len(digits) > 6 or not all(c in "0123456789abcdefABCDEF" for c in digits):
            raise self._bad("a hexadecimal code")
        code = int(digits, 16)
        if code > _LAST:
            raise self._bad("a hexadecimal code")
        self._place = after
        return code

    def _bracket(self) -> Node:
        """Return a set in brackets."""
        self._place += 1
        negated = self._take("^")
        ranges: list[tuple[int, int]] = []
        first = True
        while first or self._peek() != "]":
            first = False
            if not self._peek():
                raise self._bad("missing closing bracket")
            self._bracket_item(ranges)
        self._place += 1
        return self._set(ranges, negated)

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
            raise self._bad("a range of characters out of order")
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
            raise self._bad("an unknown class")
        self._place = end + 2
        return _others(ranges) if name.startswith("^") else ranges


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
