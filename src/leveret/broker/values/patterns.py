r"""Patterns of policies and permissions: regular expressions that answer in bounded time.

RabbitMQ's patterns are PCRE, and the commonest of them, `^(?!amq\.).*`, looks ahead, so a matcher
without lookaround will not do; a backtracking one, such as Python's, can be made to run for years
by `(a+)+$`.  This one tries the ways in the same order, but never continues twice from the same
state at the same place: what follows failed the first time, and would fail again.  Its cost is
therefore states times characters.  A lookaround is one more such walk, and so is an atomic group or
a possessive repeat: the first way through it is final, whatever follows.

This is not all of PCRE.  A match only tells whether a pattern is found, not where, so groups
capture nothing.  Refused are back references, recursion, conditions, verbs (`(*…)`), the option
`x`, `\R`, `\X`, `\C`, properties of Unicode other than categories, and, inside an atomic group,
unlimited repeats of something that can be empty (`(?>(a?)*)`), because where PCRE ends those
depends on the way to them.  `\w`, `\d`, `\s` and `\b` are about ASCII.

Invariants: a match ends after `PATTERN_LOOKS_MAX` looks and then answers no, as PCRE's own limit
does in RabbitMQ; what a pattern may cost is known when it is made.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.values.pattern_parser import (
    ASSERT,
    FOUND,
    JUMP,
    LOOK,
    SPLIT,
    TAKE,
    PatternParser,
)
from leveret.errors import PreconditionFailed
from leveret.limits import PATTERN_CHARACTERS_MAX, PATTERN_LOOKS_MAX, PATTERN_STATES_MAX

#: The memory of a state in bytes, and of the set of one that takes a character.
_STATE_BYTES: Final = 80
_SET_BYTES: Final = 200

#: Looks of a lookaround or an atomic group at a place, beside those of its states: it is a walk of
#: its own, whose end is remembered.
_LOOKAROUND_LOOKS: Final = 12

#: Characters of a name in which a plain text is searched for in one look.
_SEARCHED_PER_LOOK: Final = 64

#: What stands for itself in a pattern, beside letters and digits, and after a backslash.
_PLAIN: Final = "_-/:@,"
_ESCAPED: Final = ".-_/:@$^"

#: What it costs to compile a pattern.
_COST_PER_CHARACTER: i64 = 2
_STATES_PER_COST: i64 = 8

#: Patterns that were compiled a moment ago: permissions and policies name a few again and again.
_COMPILED_MAX: Final = 256
_compiled: dict[str, Pattern] = {}


def compile_pattern(text: str) -> Pattern:
    """Return the pattern that `text` writes.

    Raises: PreconditionFailed (406) when it is not a regular expression, or an unsupported one.
    """
    pattern = _compiled.get(text)
    if pattern is None:
        pattern = Pattern(text)
        if len(_compiled) >= _COMPILED_MAX:
            _compiled.clear()
        _compiled[text] = pattern
    return pattern


def compile_cost(text: str) -> i64:
    """Return what it costs to compile a pattern, or to refuse it.

    A character takes up to 2.4 µs, and a repeat makes many states of few characters.
    """
    characters = min(i64(len(text)), PATTERN_CHARACTERS_MAX)
    repeated = PATTERN_STATES_MAX // _STATES_PER_COST if "{" in text else 0
    return characters * _COST_PER_CHARACTER + repeated


class _TooManyLooks(Exception):
    """A walk is at its limit."""


@final
class Pattern:
    """A compiled pattern; `matches` tells whether it is found in a name."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > PATTERN_CHARACTERS_MAX:
            raise PreconditionFailed(f"a pattern has at most {PATTERN_CHARACTERS_MAX} characters")
        # Each state is an operation with up to two numbers, which are places where it goes on, and
        # a set for those that take.
        states = PatternParser(text).parse()
        self._operations: Final = [state[0] for state in states]
        self._first: Final = [
            state[1] if state[0] == ASSERT else state[1] + place
            for place, state in enumerate(states)
        ]
        self._second: Final = [
            state[2] + place if state[0] == SPLIT else state[2]
            for place, state in enumerate(states)
        ]
        self._sets: Final = [state[3] for state in states]
        self._looks: i64 = 0
        self._limit: i64 = PATTERN_LOOKS_MAX
        #: Looks of all walks so far: the cost, in a unit that is the same on every machine.
        self.walked: i64 = 0
        #: Where the walks of lookarounds and atomic groups ended (-1: nowhere), by their state and
        #: the place where they began.
        self._ends: dict[tuple[int, int], int] = {}
        #: True for those that are found at the beginning alone, such as `^orders\\.`.
        self._anchored = self._operations[0] == ASSERT and self._first[0] == ord("A")
        #: True for those that are found everywhere; most permissions are `.*`.
        self._always = text in ("", ".*", "^.*", ".*$", "^.*$")
        #: What has to be in a name, or at its beginning, where that is all; else None.
        self._plain = _plain_of(text)

    def memory(self) -> i64:
        """Return the bytes of memory that its states take: a repeat has many with one set."""
        sets = {id(characters) for characters in self._sets}
        return i64(len(self._operations)) * _STATE_BYTES + i64(len(sets)) * _SET_BYTES

    def matches(self, name: str, limit: i64 = PATTERN_LOOKS_MAX) -> bool:
        """Tell whether the pattern is found anywhere in `name`, within `limit` looks."""
        if self._always:
            return True
        plain = self._plain
        if plain is not None:
            self.walked += 1 + len(name) // _SEARCHED_PER_LOOK
            return name.startswith(plain) if self._anchored else plain in name
        self._looks = 0
        self._limit = min(limit, PATTERN_LOOKS_MAX)
        try:
            return self._walk(0, name, 0, not self._anchored, -1) >= 0
        except _TooManyLooks:
            return False
        finally:
            self.walked += self._looks
            if self._ends:
                self._ends = {}

    # -- walking -----------------------------------------------------------------------------------

    def _walk(self, entry: int, text: str, begin: int, floating: bool, exact: int) -> int:
        """Return where the first way through the states from `entry` ends; -1 where none does.

        It begins at `begin`, or with `floating` at the first place from there on where it can;
        `exact`, if it is not -1, is where it has to end.
        """
        size = len(text)
        last = size if exact < 0 else exact
        seen: set[int] = set()
        # A state at a place is one number.
        width = size + 1
        for start in range(begin, (last if floating else begin) + 1):
            pending = [entry * width + start]
            while pending:
                at = pending.pop()
                if at in seen:
                    continue
                seen.add(at)
                self._looks += 1
                if self._looks > self._limit:
                    raise _TooManyLooks
                state, place = at // width, at % width
                operation = self._operations[state]
                if operation == TAKE:
                    characters = self._sets[state]
                    if characters is not None and place < last:
                        self._looks += characters.looks
                        if characters.has(ord(text[place])):
                            pending.append(at + width + 1)
                elif operation == FOUND:
                    if exact < 0 or place == exact:
                        return place
                else:
                    self._follow(operation, state, place, text, pending)
        return -1

    def _follow(
        self, operation: int, state: int, place: int, text: str, pending: list[int]
    ) -> None:
        """Add to `pending` where a state that takes no character goes on; the last one is next."""
        width = len(text) + 1
        if operation == SPLIT:
            pending.append(self._second[state] * width + place)
            pending.append(self._first[state] * width + place)
        elif operation == JUMP:
            pending.append(self._first[state] * width + place)
        elif operation == ASSERT:
            self._looks += 1
            if _holds(self._first[state], text, place):
                pending.append((state + 1) * width + place)
        elif operation == LOOK:
            kind = self._second[state]
            found = self._end(state, text, place, kind & 2 != 0) >= 0
            if found != bool(kind & 1):
                pending.append(self._first[state] * width + place)
        else:
            end = self._end(state, text, place, False)
            if end >= 0:
                pending.append(self._first[state] * width + end)

    def _end(self, state: int, text: str, place: int, back: bool) -> int:
        """Return where a lookaround or an atomic group that begins at `place` ends, or -1.

        `back` looks for one that ends there.  Each is walked once at a place.
        """
        known = self._ends.get((state, place))
        if known is not None:
            return known
        self._looks += _LOOKAROUND_LOOKS
        begin = 0 if back else place
        found = self._walk(state + 1, text, begin, back, place if back else -1)
        self._ends[state, place] = found
        return found


def _holds(assertion: int, text: str, place: int) -> bool:
    """Tell whether an assertion of `pattern_parser` holds at `place`."""
    size = len(text)
    if assertion == ord("A"):
        return place == 0
    if assertion == ord("z"):
        return place == size
    if assertion == ord("Z"):
        return place == size or (place == size - 1 and text[place] == "\n")
    before = place > 0 and _is_word(text[place - 1])
    after = place < size and _is_word(text[place])
    return (before != after) == (assertion == ord("b"))


def _plain_of(text: str) -> str | None:
    """Return the text that a pattern searches for, if it does nothing else, or None."""
    if text.endswith(".*") and not text.endswith("\\.*"):
        # Whatever follows, what comes before was found.
        text = text[:-2]
    plain = ""
    place = 1 if text.startswith("^") else 0
    while place < len(text):
        letter = text[place]
        if letter == "\\":
            place += 1
            letter = text[place : place + 1]
            if not letter or letter not in _ESCAPED:
                return None
        elif not (letter.isascii() and letter.isalnum()) and letter not in _PLAIN:
            return None
        plain += letter
        place += 1
    return plain


def _is_word(character: str) -> bool:
    return character == "_" or (character.isascii() and character.isalnum())
