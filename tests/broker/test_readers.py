"""The four readers of a damaged directory agree: a start, reads, check and salvage."""

from __future__ import annotations

import random
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.store.flipped_disk import (
    FLIP_BYTES,
    HARMS,
    Flip,
    Specimen,
    differences,
    flips,
    running_differences,
    specimen,
)


@cache
def made(seed: int) -> Specimen:
    """The directory of a seed, which tests do not change."""
    return specimen(seed)


@pytest.mark.parametrize(("folders", "count"), HARMS)
@settings(max_examples=10)
@given(seed=st.integers(0, 2), chance=st.randoms(use_true_random=False), size=st.integers(1, 40))
def test_all_readers_say_what_consumers_get(
    folders: tuple[str, ...], count: int, seed: int, chance: random.Random, size: int
) -> None:
    harms = flips(made(seed), chance, folders, count, size)
    assert list(differences(made(seed), harms)) == []


@settings(max_examples=20)
@given(seed=st.integers(0, 2), chance=st.randoms(use_true_random=False))
def test_a_running_broker_reads_what_a_salvage_would_save(seed: int, chance: random.Random) -> None:
    harms = flips(made(seed), chance, ("segments",), 2, FLIP_BYTES)
    assert list(running_differences(made(seed), harms)) == []


def test_an_undamaged_directory_loses_nothing() -> None:
    assert list(differences(made(0), [])) == []


def test_a_chunk_whose_messages_the_journal_has_loses_none_of_them() -> None:
    """Each byte of a column and of a body of the newest segment."""
    whole = made(1)
    path = max(path for path in whole.image.files if path.startswith("segments/"))
    for at in range(0, len(whole.image.files[path]) - FLIP_BYTES, 397):
        assert list(differences(whole, [Flip(path, at, FLIP_BYTES)])) == []
