"""Offsets as Spark stores them: `{"stream": next}`, and nothing else."""

from __future__ import annotations

import json

import pytest

from leveret.spark.offsets import Positions, from_json, parse_offsets, refusal, to_json


def test_offsets_survive_the_checkpoint_in_their_order() -> None:
    text = json.dumps(to_json({"orders-1": 7, "orders-0": 1200}))
    assert text == '{"orders-1": 7, "orders-0": 1200}'
    assert [*from_json(json.loads(text)).items()] == [("orders-1", 7), ("orders-0", 1200)]
    assert from_json(json.loads(text)) == {"orders-0": 1200, "orders-1": 7}


@pytest.mark.parametrize("stored", [{"orders": "1"}, {"orders": -1}, {"orders": True}, {"a": {}}])
def test_the_checkpoint_of_another_source_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="the checkpoint is not one of streams"):
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
    with pytest.raises(ValueError, match="it names what is not read: b"):
        positions.check(["a"])
    Positions(-2).check(["a", "b"])
