"""Offsets as Spark stores them: `{"stream": next}`, and nothing else."""

from __future__ import annotations

import json

import pytest

from leveret.spark.offsets import from_json, to_json


def test_an_offset_survives_the_checkpoint() -> None:
    stored = json.loads(json.dumps(to_json("orders", 1200)))
    assert stored == {"orders": 1200}
    assert from_json("orders", stored) == 1200


@pytest.mark.parametrize("stored", [{}, {"others": 1}, {"orders": 1, "others": 1}, {"orders": "1"}])
def test_the_checkpoint_of_another_stream_is_refused(stored: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="not one of stream 'orders'"):
        from_json("orders", stored)
