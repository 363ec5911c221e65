"""Offsets as Spark stores them: `{"stream": next}`, and nothing else."""

from __future__ import annotations

import json

import pytest

from leveret.spark.offsets import Positions, Stored, from_json, parse_offsets, refusal


def test_offsets_survive_the_checkpoint_in_their_order() -> None:
    text = json.dumps(Stored({"orders-1": 7, "orders-0": 1200}).to_json())
    assert text == '{"orders-1": 7, "orders-0": 1200}'
    stored = from_json(json.loads(text))
    assert [*stored.offsets.items()] == [("orders-1", 7), ("orders-0", 1200)]
    assert stored.ids == {}


def test_the_ids_of_the_streams_stand_beside_the_offsets() -> None:
    """A stream may be without one: those of a broker that tells none, and of an older release."""
    stored = Stored({"b": 7, "a": 2, "c": 0}, {"b": "01", "a": "02", "gone": "03"})
    text = json.dumps(stored.to_json())
    assert text == '{"b": 7, "a": 2, "c": 0, "": {"ids": {"a": "02", "b": "01"}}}'
    assert from_json(json.loads(text)) == Stored({"b": 7, "a": 2, "c": 0}, {"a": "02", "b": "01"})


@pytest.mark.parametrize(
    "stored",
    [
        {"orders": "1"},
        {"orders": -1},
        {"orders": True},
        {"a": {}},
        {"orders": 1, "": {"ids": []}},
        {"orders": 1, "": {"ids": {"orders": 7}}},
        {"orders": 1, "": 7},
    ],
)
def test_the_checkpoint_of_another_source_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="the checkpoint is not of streams"):
        from_json(stored)


def test_a_refusal_is_said_when_it_is_used() -> None:
    with pytest.raises(ValueError, match="what is wrong"):
        from_json(json.loads(json.dumps(refusal("what is wrong"))))


def test_positions_by_name_must_name_exactly_what_is_read() -> None:
    positions = parse_offsets('{"a": 1, "b": -1}')
    positions.check(["b", "a"])
    assert [positions.of(name) for name in "ab"] == [1, -1]
    with pytest.raises(ValueError, match="these are missing: c, d"):
        positions.check(["a", "b", "d", "c"])
    with pytest.raises(ValueError, match="it names streams that are not read: b"):
        positions.check(["a"])
    Positions(-2).check(["a", "b"])
