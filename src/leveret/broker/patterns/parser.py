"""The compiler of a regex into states; see `patterns` for the supported syntax.

The states of a part are contiguous, each with up to two offsets of next states relative to itself.
So a part can be repeated by copying its states, and can be moved anywhere.

Invariants: groups nest at most `PATTERN_DEPTH_MAX` deep, so that parsing them cannot exhaust the
stack; a part consists of at most `PATTERN_STATES_MAX` parts.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final, final

from mypy_extensions import i64

from leveret.errors import PreconditionFailed
from leveret.limits import PATTERN_DEPTH_MAX, PATTERN_REPEATS_MAX, PATTERN_STATES_MAX

#: The operations of states: take a character of a set, continue at two states, continue at another
#: state, check an assertion, check a lookaround, end, match an atomic group.
TAKE: Final = 0
SPLIT: Final = 1
JUMP: Final = 2
ASSERT: Final = 3
LOOK: Final = 4
FOUND: Final = 5
ATOM: Final = 6
#: A `SPLIT` of a greedy repeat.  Its first branch leaves the repeat, but in an atomic group its
#: second branch does.  Compiled patterns contain no such states.
_GREEDY: Final = 7

#: Results of `_group_kind` other than the number of a lookaround.
_PLAIN: Final = -1
_OPTIONS: Final = -2
_ATOMIC: Final = -3

#: The first and the last character of a range.
Range = tuple[int, int]
#: Prefixes of character categories, and whether the property is negated.
Property = tuple[tuple[str, ...], bool]

_LAST: Final = 0x10FFFF
_DIGITS: Final = [(48, 57)]
_WORDS: Final = [(48, 57), (65, 90), (95, 95), (97, 122)]
_SPACES: Final = [(9, 13), (32, 32)]
_HORIZONTAL: Final = [
    (9, 9), (32, 32), (0xA0, 0xA0), (0x1680, 0x1680), (0x180E, 0x180E), (0x2000, 0x200A),
    (0x202F, 0x202F), (0x205F, 0x205F), (0x3000, 0x3000),
]  # fmt: skip
_VERTICAL: Final = [(10, 13), (0x85, 0x85), (0x2028, 0x2029)]
#: Escapes for a class; an upper-case letter negates it.
_CLASSES: Final[dict[str, list[Range]]] = {
    "d": _DIGITS,
    "w": _WORDS,
    "s": _SPACES,
    "h": _HORIZONTAL,
    "v": _VERTICAL,
}
#: The ranges of a set that cost one comparison.
_RANGES_PER_LOOK: Final = 8
#: POSIX classes in brackets: `[[:alpha:]]`.
_POSIX: Final[dict[str, list[Range]]] = {
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
_HEXADECIMAL: Final = re.compile(r"\{([0-9a-fA-F]{1,6})\}|([0-9a-fA-F]{2}|[0-9a-fA-F]\Z)")
_OCTAL: Final = re.compile("0[0-7]{0,2}|[0-7]{3}")

#: The position that each assertion checks, by the letter of its escape.
_ASSERTIONS: Final = {
    "^": "A",
    "$": "Z",
    "\\A": "A",
    # The start of the search.  A name is searched once, from its beginning.
    "\\G": "A",
    "\\z": "z",
    "\\Z": "Z",
    "\\b": "b",
    "\\B": "B",
}

#: The minimum and the maximum of a repeat (-1: no bound).
_REPEATS: Final = {"*": (0, -1), "+": (1, -1), "?": (0, 1)}
_BOUNDS: Final = re.compile(r"\{ *([0-9]*) *(,?) *([0-9]*) *\}")

#: A literal in `\\Q…\\E`, an end without a beginning, or any other escape.
_QUOTED: Final = re.compile(r"\\Q(.*?)(?:\\E|\Z)|\\E|\\.", re.DOTALL)

#: Unicode's general categories, by their first letter, with the second letters of each.
_CATEGORIES: Final = {
    "C": "cfnos",
    "L": "lmotu",
    "M": "cen",
    "N": "dlo",
    "P": "cdefios",
    "S": "ckmo",
    "Z": "lps",
}

#: The names in `\\p{…}`: Unicode's general categories, `L&` for letters with a case, and PCRE's own
#: names.  Each maps to prefixes of categories.
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
#: The categories of one case, which are the same if cases are folded.
_CASES: Final = (("Ll",), ("Lt",), ("Lu",))


@final
class CharacterSet:
    """A set of character ranges and Unicode properties, or its complement.

    With `fold`, upper and lower case are equal.
    """

    def __init__(
        self, ranges: list[Range], properties: list[Property], negated: bool, fold: bool
    ) -> None:
        self._ranges = ranges
        self._properties = properties
        self._negated = negated
        self._fold = fold
        cases = 3 if fold else 1
        #: The additional comparisons of a check against the set, 0 for a few ranges.
        self.looks: i64 = len(ranges) * cases // _RANGES_PER_LOOK + len(properties) * cases

    def has(self, code: int) -> bool:
        """Return whether the character with the given code is in the set."""
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


#: A state: its operation, its two numbers, and the characters that it takes.
State = tuple[int, int, int, CharacterSet | None]


@final
class PatternPart:
    """A part of a pattern: its states, and the number of parts in it."""

    def __init__(
        self, states: list[State], size: int, may_be_empty: bool, repeats_nothing: bool = False
    ) -> None:
        self.states: Final = states
        self.size: Final = size
        #: True if it can match the empty string, and if it repeats such a part without a bound.
        self.may_be_empty: Final = may_be_empty
        self.repeats_nothing: Final = repeats_nothing


@final
class PatternParser:
    """The parser of one pattern."""

    def __init__(self, text: str) -> None:
        # A repeat after a quoted literal repeats its last character.
        self._text = _QUOTED.sub(_escaped_literal, text)
        self._place = 0
        self._depth = 0
        self._fold = False
        #: True if repeats are lazy, and `?` makes them greedy.
        self._lazy = False

    def parse(self) -> list[State]:
        """Return the states of the whole pattern.  Raises: PreconditionFailed (406)."""
        part = self._alternatives()
        if self._place < len(self._text):
            raise self._bad("unmatched closing parenthesis")
        return [*_with_splits(part.states, False), (FOUND, 0, 0, None)]

    def _bad(self, why: str) -> PreconditionFailed:
        return PreconditionFailed(
            f"not a valid regular expression: '{self._text}': {why} at {self._place}"
        )

    def _check_size(self, size: int) -> int:
        if size > PATTERN_STATES_MAX:
            raise PreconditionFailed(f"the pattern '{self._text}' is too large")
        return size

    def _peek(self) -> str:
        """Return the next character, or "" at the end."""
        return self._text[self._place : self._place + 1]

    def _next(self) -> str:
        """Consume and return the next character."""
        self._place += 1
        return self._text[self._place - 1 : self._place]

    def _take(self, wanted: str) -> bool:
        """Consume `wanted` if it is next; return whether it was."""
        if self._text.startswith(wanted, self._place):
            self._place += len(wanted)
            return True
        return False

    # -- structure ---------------------------------------------------------------------------------

    def _alternatives(self) -> PatternPart:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        if len(branches) == 1:
            return branches[0]
        size = self._check_size(1 + sum([part.size for part in branches]))
        end = sum([len(part.states) + 2 for part in branches]) - 2
        states: list[State] = []
        for part in branches[:-1]:
            states.append((SPLIT, 1, len(part.states) + 2, None))
            states += part.states
            states.append((JUMP, end - len(states), 0, None))
        states += branches[-1].states
        empty = any(part.may_be_empty for part in branches)
        return PatternPart(states, size, empty, any(part.repeats_nothing for part in branches))

    def _sequence(self) -> PatternPart:
        parts: list[PatternPart] = []
        while self._peek() not in ("", "|", ")"):
            atom = self._atom()
            if atom is not None:
                parts.append(self._repeated(atom))
        if len(parts) == 1:
            return parts[0]
        size = self._check_size(1 + sum([part.size for part in parts]))
        states = [state for part in parts for state in part.states]
        empty = all(part.may_be_empty for part in parts)
        return PatternPart(states, size, empty, any(part.repeats_nothing for part in parts))

    def _repeated(self, atom: PatternPart) -> PatternPart:
        """Return `atom` with the repeats that follow it."""
        while self._comment():
            pass
        bounds = self._bounds()
        if bounds is None:
            return atom
        possessive = self._take("+")
        lazy = not possessive and self._take("?") != self._lazy
        repeat = self._repeat(atom, bounds[0], bounds[1], SPLIT if lazy else _GREEDY)
        if self._bounds() is not None:
            raise self._bad("a repeat of a repeat")
        return self._atomic(repeat) if possessive else repeat

    def _repeat(self, atom: PatternPart, least: int, most: int, split: int) -> PatternPart:
        times = least + 1 if most < 0 else most
        size = self._check_size(1 + atom.size * times)
        states = atom.states * least
        # A state tries its first branch first.  The order matters only in an atomic group.
        # Elsewhere the walk ends soonest if it leaves the repeat first.
        width = len(atom.states) + 1
        for left in range(times - least, 0, -1):
            states.append((split, left * width + (1 if most < 0 else 0), 1, None))
            states += atom.states
        if most < 0:
            states.append((JUMP, -width, 0, None))
        repeats_nothing = atom.repeats_nothing or (most < 0 and atom.may_be_empty)
        return PatternPart(states, size, least == 0 or atom.may_be_empty, repeats_nothing)

    def _bounds(self) -> tuple[int, int] | None:
        """Consume a quantifier and return its minimum and maximum (-1: no bound), or None."""
        bounds = _REPEATS.get(self._peek())
        if bounds is not None:
            self._place += 1
            return bounds
        found = _BOUNDS.match(self._text, self._place)
        if found is None or not (found[1] or found[3]):
            return None  # not a quantifier: a literal brace
        least = int(found[1] or "0")
        most = int(found[3] or "-1") if found[2] else least
        if max(least, most) > PATTERN_REPEATS_MAX or -1 < most < least:
            raise self._bad(
                f"the bounds of a repeat are out of order or above {PATTERN_REPEATS_MAX}"
            )
        self._place = found.end()
        return (least, most)

    def _atom(self) -> PatternPart | None:
        """Return the next part, or None if it only sets an option."""
        character = self._peek()
        if character == "(":
            return None if self._comment() else self._group()
        if character in _REPEATS:
            raise self._bad("nothing to repeat")
        self._place += 1
        if character == "[":
            return self._bracket()
        letter = self._peek() if character == "\\" else ""
        assertion = _ASSERTIONS.get(character + letter)
        if assertion is not None:
            self._place += len(letter)
            return PatternPart([(ASSERT, ord(assertion), 0, None)], 1, True)
        if character == "\\":
            return self._escape()
        if character == ".":
            return self._set([(10, 10)], True)
        return self._set([(ord(character), ord(character))], False)

    def _set(
        self, ranges: list[Range], negated: bool, properties: list[Property] | None = None
    ) -> PatternPart:
        characters = CharacterSet(ranges, properties or [], negated, self._fold)
        return PatternPart([(TAKE, 0, 0, characters)], 1, False)

    def _group(self) -> PatternPart | None:
        self._depth += 1
        if self._depth > PATTERN_DEPTH_MAX:
            raise self._bad(f"groups are nested more than {PATTERN_DEPTH_MAX} deep")
        fold, lazy = self._fold, self._lazy
        self._place += 1
        if self._take("*"):
            raise self._bad("verbs are not supported")
        kind = self._group_kind() if self._take("?") else _PLAIN
        if kind == _OPTIONS:
            self._depth -= 1
            return None
        inner = self._alternatives()
        if not self._take(")"):
            raise self._bad("missing closing parenthesis")
        self._depth -= 1
        self._fold, self._lazy = fold, lazy
        if kind == _PLAIN:
            return inner
        if kind == _ATOMIC:
            return self._atomic(inner)
        return self._walked(LOOK, kind, inner, True)

    def _atomic(self, inner: PatternPart) -> PatternPart:
        if inner.repeats_nothing:
            raise self._bad("an atomic group has an unlimited repeat of a part that can be empty")
        return self._walked(ATOM, 0, inner, inner.may_be_empty)

    def _walked(
        self, operation: int, kind: int, inner: PatternPart, may_be_empty: bool
    ) -> PatternPart:
        """Return a part that is matched by a separate walk."""
        states = _with_splits(inner.states, operation == ATOM)
        states.insert(0, (operation, len(states) + 2, kind, None))
        states.append((FOUND, 0, 0, None))
        return PatternPart(states, self._check_size(1 + inner.size), may_be_empty)

    def _comment(self) -> bool:
        """Consume a comment if it is next; return whether it was."""
        if not self._take("(?#"):
            return False
        end = self._text.find(")", self._place)
        if end < 0:
            raise self._bad("missing closing parenthesis")
        self._place = end + 1
        return True

    def _group_kind(self) -> int:
        """Parse the group type after `(?`.

        Return a lookaround's number, or `_ATOMIC`, `_OPTIONS` (options without a group) or
        `_PLAIN`.  The number is the sum of 1 for a negated lookaround and 2 for a lookbehind.
        """
        # `|` only affects the numbers of groups, which are not used here.
        for mark, kind in (
            ("=", 0), ("!", 1), ("<=", 2), ("<!", 3), (">", _ATOMIC), (":", _PLAIN), ("|", _PLAIN),
        ):  # fmt: skip
            if self._take(mark):
                return kind
        for opening, closing in (("P<", ">"), ("<", ">"), ("'", "'")):
            if self._take(opening):
                end = self._text.find(closing, self._place)
                if end < 0 or not self._text[self._place : end].isidentifier():
                    raise self._bad("the name of a group is not valid")
                self._place = end + 1
                return _PLAIN
        return self._options()

    def _options(self) -> int:
        """Parse options up to `:` or `)`.

        `i` folds cases, and `U` swaps greedy and lazy.  The other supported options have no effect,
        because a name has no line ends (`s`, `m`) and groups have no numbers (`n`, `J`).
        """
        if self._take("^"):
            self._fold = False
        on = True
        while True:
            option = self._next()
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

    def _escape(self) -> PatternPart:
        """Return the part for an escape outside brackets."""
        letter = self._peek()
        if letter == "K":
            # `\K` sets the start of the match, which is not used here.
            self._place += 1
            return PatternPart([], 1, True)
        if letter == "N" and not self._text.startswith("{", self._place + 1):
            self._place += 1
            return self._set([(10, 10)], True)
        if letter in ("p", "P"):
            return self._set([], False, [self._property()])
        ranges, negated = self._escaped()
        return self._set(ranges, negated)

    def _property(self) -> Property:
        """Return the categories of a property, and whether it is negated."""
        others = self._next() == "P"
        if self._take("{"):
            end = self._text.find("}", self._place)
            name = self._text[self._place : end] if end >= 0 else ""
            self._place += len(name) + 1
            if name.startswith("^"):
                name = name[1:]
                others = not others
        else:
            name = self._next()
        found = _PROPERTIES.get(name)
        if found is None:
            raise self._bad(f"the property '{name}' is not supported, only general categories are")
        if self._fold and found in _CASES:
            found = _PROPERTIES["L&"]
        return found, others

    def _escaped(self) -> tuple[list[Range], bool]:
        """Return the ranges of an escape, and whether it is negated."""
        letter = self._next()
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
        if letter and letter in "01234567":
            return self._octal()
        if letter == "c" and " " <= self._peek() <= "~":
            return ord(self._next().upper()) ^ 64
        if not letter or (letter.isascii() and letter.isalnum()):
            raise self._bad(f"the escape '\\{letter}' is not supported")
        return ord(letter)

    def _octal(self) -> int:
        """Return the code of `0`, `0d`, `0dd` or `ddd`, after reading the first digit."""
        found = _OCTAL.match(self._text, self._place - 1)
        if found is None:
            raise self._bad("back references are not supported")
        self._place = found.end()
        return int(found[0], 8)

    def _hexadecimal(self) -> int:
        """Return the code of `hh` or `{h…}`."""
        found = _HEXADECIMAL.match(self._text, self._place)
        code = _LAST + 1 if found is None else int(found[1] or found[2], 16)
        if found is None or code > _LAST:
            raise self._bad("a hexadecimal code is not valid")
        self._place = found.end()
        return code

    def _bracket(self) -> PatternPart:
        """Return a set in brackets, after reading the opening bracket."""
        negated = self._take("^")
        ranges: list[Range] = []
        properties: list[Property] = []
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
        return self._set(ranges, negated, properties)

    def _bracket_item(self, ranges: list[Range]) -> None:
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

    def _bracket_ranges(self) -> list[Range]:
        """Return the ranges of one character or escape in brackets."""
        character = self._next()
        if character != "\\":
            return [(ord(character), ord(character))]
        if self._take("b"):
            return [(8, 8)]
        ranges, negated = self._escaped()
        return _others(ranges) if negated else ranges

    def _posix(self) -> list[Range]:
        end = self._text.find(":]", self._place)
        name = self._text[self._place : end] if end >= 0 else ""
        ranges = _POSIX.get(name.removeprefix("^"))
        if ranges is None:
            raise self._bad(f"the class '[:{name}:]' does not exist")
        self._place = end + 2
        return _others(ranges) if name.startswith("^") else ranges


def _with_splits(states: list[State], atomic: bool) -> list[State]:
    """Return the states with greedy repeats as splits, in the order for atomic groups or others."""
    found: list[State] = []
    for state in states:
        if state[0] == _GREEDY:
            ways = (state[2], state[1]) if atomic else (state[1], state[2])
            found.append((SPLIT, ways[0], ways[1], None))
        else:
            found.append(state)
    return found


def _escaped_literal(found: re.Match[str]) -> str:
    """Return a quoted literal with all its special characters escaped."""
    literal: str | None = found[1]
    if literal is None:
        return "" if found[0] == "\\E" else found[0]
    return "".join([one if one.isalnum() else "\\" + one for one in literal])


def _others(ranges: list[Range]) -> list[Range]:
    """Return the complement of `ranges`, which are in order."""
    others: list[Range] = []
    begin = 0
    for first, last in ranges:
        if first > begin:
            others.append((begin, first - 1))
        begin = last + 1
    others.append((begin, _LAST))
    return others
