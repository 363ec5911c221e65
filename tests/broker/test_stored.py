"""The stored chunks of a queue against a plain list of them."""

from __future__ import annotations

import random

import pytest

from leveret.broker.backlog.stored import StoredChunk, StoredChunks
from leveret.store.segments.segments import ChunkRef
from support.node.core import Node
from support.node.variants import few_of

#: Sequences from the beginning of one chunk to that of the next, of which a chunk has most.
APART = 10

CHUNKS = 3000


def ref_at(place: int, first: int = 0) -> ChunkRef:
    """The reference of a chunk that begins `first` sequences behind its place."""
    begin = place * APART + first
    return ChunkRef(1, place * 100, 100, begin, place * APART + 7, 8 - first, 0, 0)


class Model:
    """Chunks of which each may be there, by their places."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.stored = StoredChunks(Node().core.spill)
        self.there: dict[int, StoredChunk] = {}

    def add(self, place: int) -> None:
        self.there[place] = self.stored.add(ref_at(place), 8)

    def remove(self, place: int) -> None:
        self.stored.remove(self.there.pop(place))

    def compact(self, place: int) -> None:
        self.stored.replace(self.there[place], ref_at(place, self.chance.randrange(1, 4)))

    def judge(self) -> None:
        """What it says must be what the list says."""
        places = sorted(self.there)
        expected = [self.there[place] for place in places]
        assert self.stored.items == expected
        for _ in range(5):
            # Most often near a chunk: the last time it was found there.
            near = self.chance.choice(places) if places else 0
            sequence = near * APART + self.chance.randrange(-3, APART)
            refs = [(one, one.ref) for one in expected]
            inside = [one for one, ref in refs if ref.first <= sequence <= ref.last]
            assert self.stored.find(sequence) is (inside[0] if inside else None)
            later = [one for one, ref in refs if ref.last >= sequence]
            assert self.stored.next_from(sequence) is (later[0] if later else None)
            last = sequence + self.chance.randrange(1, 3 * APART)
            between = any(sequence < ref.first < last for _, ref in refs)
            assert self.stored.parts(sequence, last) == between


@pytest.mark.parametrize("seed", few_of(range(20), 6))
def test_few_chunks_are_those_of_the_list(seed: int) -> None:
    model = Model(random.Random(seed))
    for _ in range(300):
        place = model.chance.randrange(30)
        if place not in model.there:
            model.add(place)
        elif model.chance.random() < 0.3:
            model.compact(place)
        else:
            model.remove(place)
        model.judge()


@pytest.mark.parametrize("order", ["up", "down", "mixed"])
def test_many_chunks_are_those_of_the_list(order: str) -> None:
    model = Model(random.Random(5))
    places = list(range(CHUNKS))
    if order == "mixed":
        model.chance.shuffle(places)
    for place in reversed(places) if order == "down" else places:
        model.add(place)
    model.judge()
    if order == "mixed":
        model.chance.shuffle(places)
    for number, place in enumerate(places):
        model.remove(place)
        if number % 512 == 0:
            model.judge()
    model.judge()
    assert model.stored.through == 0
