"""`GET /api/memory`: the account of memory by kind."""

from __future__ import annotations

from typing import Any

from leveret.client.blocking import Channel
from support.http.http_api import Api

BODY_BYTES = 1_000_000


def memory(api: Api) -> dict[str, dict[str, Any]]:
    """The rows by their kinds."""
    status, rows, _ = api.answer("/api/memory")
    assert status == 200
    assert isinstance(rows, list)
    return {row["kind"]: row for row in rows}


def test_a_waiting_message_is_in_its_kind_and_in_what_has_it(api: Api, channel: Channel) -> None:
    channel.queue_declare("q.memory", exclusive=True)
    channel.confirm_select()
    before = memory(api)
    channel.publish(bytes(BODY_BYTES), "", "q.memory")
    after = memory(api)
    for kind in ("all", "messages"):
        assert after[kind]["bytes"] - before[kind]["bytes"] > BODY_BYTES // 2
    for kind in ("retained", "retries", "definitions", "marks"):
        assert abs(after[kind]["bytes"] - before[kind]["bytes"]) < BODY_BYTES // 2


def test_each_kind_says_what_it_is_part_of_and_its_limit(api: Api) -> None:
    found = memory(api)
    assert all(row["of"] in found for row in found.values() if row["kind"] != "all")
    most = found["all"]["max"]
    assert found["marks"]["max"] == most // 8
    assert found["messages"]["max"] is None
    assert all(0 <= row["bytes"] <= (row["max"] or most) for row in found.values())
