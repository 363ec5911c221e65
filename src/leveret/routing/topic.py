"""A trie of topic binding keys, which finds the targets that match a routing key.

    keys            trie                        match("a.x")
    a.*  -> q1      root ─a─ node ─*─ node q1   states: {root, #} ─a─► {a, #} ─x─► {a.*, #}
    #    -> q2           └#─ node q2            targets of the last states: q1, q2

A binding key is a path of words from the root, in its simplest form: adjacent wildcards are put in
one order (`#.#` is `#`, `#.*` is `*.#`).  `*` and `#` are separate edges, so that the same
characters in a routing key are plain words.

Matching follows all paths at once.  It advances the set of nodes reached so far (the states) word
by word.  A node occurs at most once in the states, so a match takes at most words x nodes steps,
and no number of `#` causes backtracking.  Nodes that are not reached cost nothing.

The trie stores neither the arguments nor the identity of bindings.  Targets are any hashable
objects, which are returned and never called.

Invariants: a leaf has a target, so a trie without targets consists of the root; the order of
results depends only on the calls made.  Only one thread at a time may use a trie, because `match`
marks the nodes it visits.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.routing.keys import ANY_WORDS, ONE_WORD, pattern_words, split_words

#: A number larger than the states of any match.
_NO_LIMIT: Final[i64] = 1 << 60


@final
class TrieNode:
    """A node, the end of a path of words, with the targets bound by exactly that path."""

    def __init__(self, repeats: bool) -> None:
        self.words: dict[str, TrieNode] = {}
        self.one_word: TrieNode | None = None
        self.any_words: TrieNode | None = None
        self.targets: dict[object, int] = {}
        #: True if reached by `#`, so that the node stays reached whichever word follows.
        self.repeats = repeats
        #: The step that last reached this node, so that each step contains it once.
        self.step: i64 = 0

    def child(self, word: str) -> TrieNode | None:
        """Return the node reached by `word` of a binding key, if it exists."""
        if word == ONE_WORD:
            return self.one_word
        if word == ANY_WORDS:
            return self.any_words
        return self.words.get(word)

    def grow(self, word: str) -> TrieNode:
        """Return the node reached by `word` of a binding key, creating it if needed."""
        node = self.child(word)
        if node is None:
            node = TrieNode(word == ANY_WORDS)
            if word == ONE_WORD:
                self.one_word = node
            elif word == ANY_WORDS:
                self.any_words = node
            else:
                self.words[word] = node
        return node

    def cut(self, word: str) -> None:
        """Remove the node reached by `word` of a binding key."""
        if word == ONE_WORD:
            self.one_word = None
        elif word == ANY_WORDS:
            self.any_words = None
        else:
            del self.words[word]

    def is_bare(self) -> bool:
        """Return whether the node has neither targets nor children."""
        return not (self.targets or self.words or self.one_word or self.any_words)


@final
class TopicTrie:
    """Binding keys with their targets, found by routing key.

    `nodes` counts the nodes without the root, as a measure of memory.  `states_visited` counts the
    states of all matches so far, as a measure of cost that does not depend on the machine.
    `find_within` abandons a match that would cost too much.
    """

    def __init__(self) -> None:
        self._root = TrieNode(repeats=False)
        self.nodes: i64 = 0
        self._step: i64 = 0
        self.states_visited: i64 = 0

    def insert(self, binding_key: str, target: object) -> None:
        """Bind `target`; a repeated pair must be removed as often as it was inserted.

        Raises: PreconditionFailed (406) for a key of more than `TOPIC_WORDS_MAX` words.
        """
        node = self._root
        for word in pattern_words(binding_key):
            following = node.child(word)
            if following is None:
                following = node.grow(word)
                self.nodes += 1
            node = following
        node.targets[target] = node.targets.get(target, 0) + 1

    def remove(self, binding_key: str, target: object) -> bool:
        """Undo one `insert` of the same pair; return False if there was none.

        Raises: PreconditionFailed (406) for a key of more than `TOPIC_WORDS_MAX` words.
        """
        words = pattern_words(binding_key)
        path = [self._root]
        for word in words:
            child = path[-1].child(word)
            if child is None:
                return False
            path.append(child)
        targets = path[-1].targets
        count = targets.get(target, 0)
        if count == 0:
            return False
        if count > 1:
            targets[target] = count - 1
            return True
        del targets[target]
        self._prune(path, words)
        return True

    def match(self, routing_key: str) -> list[object]:
        """Return the targets of all binding keys that match, each target once.

        Raises: PreconditionFailed (406) for a key of more than `TOPIC_WORDS_MAX` words.
        """
        return list(self.find(routing_key))

    def find(self, routing_key: str) -> dict[object, int]:
        """Return the result of `match` as the keys of a dict, which may belong to the trie.

        The caller must not change the dict, nor use it after the trie has changed.

        Raises: PreconditionFailed (406) for a key of more than `TOPIC_WORDS_MAX` words.
        """
        found = self.find_within(routing_key, _NO_LIMIT)
        return {} if found is None else found

    def find_within(self, routing_key: str, states_max: i64) -> dict[object, int] | None:
        """Return the result of `find`, or None if it would visit more than `states_max` states.

        Raises: PreconditionFailed (406) for a key of more than `TOPIC_WORDS_MAX` words.
        """
        last = self.states_visited + states_max
        states = self._first_states()
        for word in split_words(routing_key):
            if not states:
                break
            states = self._next_states(states, word, last)
            if self.states_visited > last:
                return None
        return _targets_of(states)

    def is_empty(self) -> bool:
        """Return whether the trie has no bindings, and thus only its root."""
        return self._root.is_bare()

    def _prune(self, path: list[TrieNode], words: list[str]) -> None:
        """Remove the nodes at the end of `path` that have neither targets nor children."""
        depth = len(words)
        while depth > 0 and path[depth].is_bare():
            depth -= 1
            path[depth].cut(words[depth])
            self.nodes -= 1

    def _first_states(self) -> list[TrieNode]:
        """Return the nodes that are reached before the first word."""
        states: list[TrieNode] = []
        self._step += 1
        self._reach(self._root, states)
        self.states_visited += len(states)
        return states

    def _next_states(self, states: list[TrieNode], word: str, last: i64) -> list[TrieNode]:
        """Return the states reached from `states` by one more word.

        Stop early if `states_visited` would exceed `last`.
        """
        following: list[TrieNode] = []
        self._step += 1
        room = last - self.states_visited
        for node in states:
            if len(following) > room:
                break
            if node.repeats:
                self._reach(node, following)
            if node.words:
                self._reach(node.words.get(word), following)
            if node.one_word is not None:
                self._reach(node.one_word, following)
        self.states_visited += len(following)
        return following

    def _reach(self, node: TrieNode | None, states: list[TrieNode]) -> None:
        """Add `node` and the nodes that its `#` edges reach without a word, each once per step."""
        step = self._step
        while node is not None and node.step != step:
            node.step = step
            states.append(node)
            node = node.any_words


def _targets_of(states: list[TrieNode]) -> dict[object, int]:
    """Return the distinct targets of the states as keys, the node's own dict if it is one node."""
    found: dict[object, int] | None = None
    several = False
    for node in states:
        if not node.targets:
            continue
        if found is None:
            found = node.targets
        elif several:
            found.update(node.targets)
        else:
            found = {**found, **node.targets}
            several = True
    return found if found is not None else {}
