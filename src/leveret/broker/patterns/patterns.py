r"""Patterns of policies and permissions: regexes with bounded matching time.

RabbitMQ's patterns are PCRE.  The most common one, `^(?!amq\.).*`, has a lookahead, so a matcher
without lookaround is not enough.  A backtracking matcher, such as Python's, can run for years with
`(a+)+$`.  This matcher tries alternatives in the same order, but never continues twice from the
same state at the same position, because the rest failed the first time and would fail again.  So
its cost is states times characters.  A lookaround is matched by a separate walk of this kind, and
so is an atomic group or a possessive repeat, where the first match is final whatever follows.

The syntax is a subset of PCRE.  A match only reports whether a pattern is found, not where, so
groups capture nothing.  Not supported are back references, recursion, conditions, verbs (`(*…)`),
the option `x`, `\R`, `\X`, `\C`, Unicode properties other than categories, and, inside an atomic
group, unlimited repeats of a part that can be empty (`(?>(a?)*)`), because in PCRE their end
depends on the path to them.  `\w`, `\d`, `\s` and `\b` are limited to ASCII.

Invariants: a match fails after `PATTERN_LOOKS_MAX` comparisons, like PCRE's own limit in RabbitMQ;
the maximum cost of a pattern is known when it is compiled.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.broker.patterns.parser import (
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

#: The memory of a state in bytes, and of its character set.
_STATE_BYTES: Final = 80
_SET_BYTES: Final = 200

#: The comparisons counted for a lookaround or an atomic group at a position, in addition to those
#: of its states, because it is a separate walk with a cached end.
_LOOKAROUND_LOOKS: Final = 12

#: The characters of a name that can be searched for a plain string at the cost of one comparison.
_SEARCHED_PER_LOOK: Final = 64

#: Literal characters in a pattern in addition to letters and digits: as they are, and after a
#: backslash.
_PLAIN: Final = "_-/:@,"
_ESCAPED: Final = ".-_/:@$^"

#: The cost of compiling a character, and the states that are compiled at a cost of 1.
_COST_PER_CHARACTER: i64 = 2
_STATES_PER_COST: i64 = 8

#: The cache of compiled patterns, because permissions and policies repeat a few patterns.
_COMPILED_MAX: Final = 256
_compiled: dict[str, Pattern] = {}


def compile_pattern(text: str) -> Pattern:
    """Return the compiled pattern of `text`.

    Raises: PreconditionFailed (406) if it is not a regex, or an unsupported one.
    """
    pattern = _compiled.get(text)
    if pattern is None:
        pattern = Pattern(text)
        if len(_compiled) >= _COMPILED_MAX:
            _compiled.clear()
        _compiled[text] = pattern
    return pattern


def compile_cost(text: str) -> i64:
    """Return the cost of compiling a pattern, or of refusing it.

    A character takes up to 2.4 µs, and a repeat makes many states from few characters.
    """
    characters = min(i64(len(text)), PATTERN_CHARACTERS_MAX)
    repeated = PATTERN_STATES_MAX // _STATES_PER_COST if "{" in text else 0
    return characters * _COST_PER_CHARACTER + repeated


class _TooManyLooks(Exception):
    """Raised when a match reaches its limit."""


@final
class Pattern:
    """A compiled pattern."""

    def __init__(self, text: str) -> None:
        self.text = text
        if len(text) > PATTERN_CHARACTERS_MAX:
            raise PreconditionFailed(f"a pattern has at most {PATTERN_CHARACTERS_MAX} characters")
        # Each state is an operation with up to two numbers (the next states), and a character set
        # if it takes a character.
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
        #: The comparisons of all walks so far, as a cost that is the same on every machine.
        self.walked: i64 = 0
        #: The ends of lookarounds and atomic groups (-1: no match), by their state and the position
        #: of their beginning.
        self._ends: dict[tuple[int, int], int] = {}
        #: True if it matches only at the beginning, such as `^orders\\.`.
        self._anchored = self._operations[0] == ASSERT and self._first[0] == ord("A")
        #: True if it matches everything, as most permissions do (`.*`).
        self._always = text in ("", ".*", "^.*", ".*$", "^.*$")
        #: The string to search for (only at the beginning, if anchored), if the pattern is only a
        #: string; else None.
        self._plain = _plain_of(text)

    def memory(self) -> i64:
        """Return the bytes of memory of the states.  The states of a repeat share one set."""
        sets = {id(characters) for characters in self._sets}
        return i64(len(self._operations)) * _STATE_BYTES + i64(len(sets)) * _SET_BYTES

    def matches(self, name: str, limit: i64 = PATTERN_LOOKS_MAX) -> bool:
        """Return whether the pattern is found anywhere in `name`, within `limit` comparisons."""
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
        """Return the end of the first match of the states from `entry`, or -1.

        The match begins at `begin`, or with `floating` at the first possible position from there
        on.  `exact` is the required end, if it is not -1.
        """
        size = len(text)
        last = size if exact < 0 else exact
        seen: set[int] = set()
        # A state and a position are encoded as one number.
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
        """Add the successors of a state that takes no character to `pending`, the next one last."""
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
        """Return the end of a lookaround or an atomic group that begins at `place`, or -1.

        With `back`, it must end at `place` instead.  Each is walked once for each position.
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
    """Return whether an assertion of `parser` holds at `place`."""
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
    """Return the string that a pattern searches for, or None if it does anything else."""
    if text.endswith(".*") and not text.endswith("\\.*"):
        # A final `.*` always matches.
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
