"""The Spark queries that read a stream, as their requests and their consumers report them."""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterator

import pytest

from leveret.broker.ownership import Owner
from leveret.client.blocking import Channel
from leveret.clock import ManualClock
from leveret.limits import (
    STREAM_QUERIES_MAX,
    STREAM_QUERIES_PER_USER_MAX,
    STREAM_QUERY_NAME_CHARACTERS_MAX,
    STREAM_QUERY_SILENCE_MS,
)
from leveret.management.metrics.stream_queries import StreamQueries, StreamQuery
from support.http.http_api import Api
from support.node.core import Node

PATH = "/api/streams/%2F/queried"
BAD_REQUEST = 400


@pytest.fixture
def stream(channel: Channel) -> Iterator[str]:
    """A stream with ten messages of ten bytes."""
    channel.queue_declare("queried", durable=True, arguments={"x-queue-type": "stream"})
    channel.confirm_select()
    for _ in range(10):
        channel.publish(b"0123456789", routing_key="queried")
    yield "queried"
    channel.queue_delete("queried")


def tell(api: Api, what: str = "", **told: object) -> int:
    """Send a request of a query's process; return its status."""
    api.request("GET", f"{PATH}{what}?{urllib.parse.urlencode(told)}")
    answer = api.getresponse()
    answer.read()
    return answer.status


def told_of(api: Api) -> list[dict[str, object]]:
    """Return what the API shows of the queries."""
    status, found = api.ask("GET", f"{PATH}/queries")
    assert status == 200
    assert isinstance(found, list)
    for one in found:
        assert one.pop("heard") > 1_700_000_000_000
    return found


def test_a_query_reports_itself_with_its_other_requests(api: Api, stream: str) -> None:
    assert told_of(api) == []
    assert tell(api, run="r1", position=4) == 200
    assert tell(api, "/chunks", run="r1", query_id="q-1", query_name='<i> "é"', offset=4) == 200
    assert tell(api, run="r1", position=7) == 200
    _, facts = api.ask("GET", PATH)
    assert isinstance(facts, dict)
    expected = {
        "query_id": "q-1", "name": '<i> "é"', "owner": None, "owner_deleted": False, "position": 7,
        "lag": 3, "bytes_behind": facts["bytes"] * 3 // 10,
    }  # fmt: skip
    assert told_of(api) == [expected]
    # Another run of the query takes its place; the other run had not said who it is.
    tell(api, run="r2", position=2)
    assert [one["query_id"] for one in told_of(api)] == ["q-1", None]
    tell(api, "/chunks", run="r2", query_id="q-1", query_name="n" * 1000)
    (found,) = told_of(api)
    assert (found["position"], found["lag"]) == (2, 8)
    assert found["name"] == "n" * STREAM_QUERY_NAME_CHARACTERS_MAX


def test_prometheus_gets_an_entry_for_each_query(api: Api, stream: str) -> None:
    tell(api, run="r1", position=4)
    tell(api, "/chunks", run="r1", query_id="q-1", query_name='a "b"')
    tell(api, run="unnamed", position=4)
    api.request("GET", "/metrics/detailed?family=stream_query_metrics")
    text = api.getresponse().read().decode()
    labels = 'query="a \\"b\\"",query_id="q-1",stream="queried",user="",vhost="/"'
    for name, value in (("position", 4), ("lag", 6)):
        assert f"leveret_stream_query_{name}{{{labels}}} {value}.0\n" in text
    assert text.count("leveret_stream_query_lag{") == 1
    assert 'leveret_metrics_objects_omitted{of="stream_queries"} 0.0\n' in text


@pytest.mark.parametrize(
    "told",
    [{"run": ""}, {"run": "r" * 65}, {"run": "a b"}, {"run": "r", "position": "-1"},
     {"run": "r", "position": "x"}, {"run": "r", "query_id": "a/b"}],
)  # fmt: skip
def test_what_is_no_report_is_refused(api: Api, stream: str, told: dict[str, str]) -> None:
    assert tell(api, **told) == BAD_REQUEST
    assert told_of(api) == []


def test_a_report_of_a_stream_that_was_declared_again_is_not_of_the_new_one(
    api: Api, stream: str, channel: Channel
) -> None:
    tell(api, run="r1", position=4, query_id="q-1")
    channel.queue_delete(stream)
    channel.queue_declare(stream, durable=True, arguments={"x-queue-type": "stream"})
    assert told_of(api) == []
    api.request("GET", "/metrics/detailed?family=stream_query_metrics")
    assert b"leveret_stream_query_lag{" not in api.getresponse().read()


def consume(channel: Channel, stream: str, **told: object) -> None:
    """Attach a consumer of a query's process, and cancel it."""
    channel.qos(1)
    arguments = {"x-stream-offset": "next", "x-spark-query": told}
    channel.consume(stream, arguments=arguments).cancel()


def test_a_query_reports_itself_with_its_consumers(api: Api, stream: str, channel: Channel) -> None:
    consume(channel, stream, run="r1", position=4)
    consume(channel, stream, run="r1", query_id="q-1", query_name="n" * 1000)
    (found,) = told_of(api)
    assert (found["query_id"], found["name"]) == ("q-1", "n" * STREAM_QUERY_NAME_CHARACTERS_MAX)
    assert (found["owner"], found["position"], found["lag"]) == ("guest", 4, 6)


@pytest.mark.parametrize(
    "told",
    [{}, {"run": ""}, {"run": "r" * 65}, {"run": 1}, {"run": "r", "query_id": "a/b"}],
)
def test_a_consumer_with_an_invalid_report_reads_all_the_same(
    api: Api, stream: str, channel: Channel, told: dict[str, object]
) -> None:
    consume(channel, stream, **told)
    assert told_of(api) == []
    consume(channel, stream, run="r", position=-1, query_name=7)
    (found,) = told_of(api)
    assert (found["name"], found["position"]) == (None, None)


class Reports:
    """What a broker knows of queries, on a clock that stands still."""

    def __init__(self) -> None:
        self.node = Node()
        self.accounts = self.node.broker.core.accounts
        self.clock = ManualClock()
        self.queries = StreamQueries()

    def tell(self, run: int, user: int = 1, stream: int = 1) -> None:
        owner = Owner(f"u{user}", user)
        told = StreamQuery("/", "s", stream, owner, str(run))
        self.queries.report(told, self.node.broker.core, self.clock)

    def runs(self, stream: int = 1) -> set[str]:
        return {one.run for one in self.queries.of(stream, self.clock)}


def test_a_silent_query_is_forgotten_and_its_memory_booked_out() -> None:
    reports = Reports()
    before = reports.accounts.mark_bytes
    reports.tell(1)
    booked = reports.accounts.mark_bytes - before
    assert booked > 0
    reports.clock.advance(STREAM_QUERY_SILENCE_MS - 1)
    assert reports.runs() == {"1"}
    reports.clock.advance(1)
    assert reports.runs() == set()
    reports.tell(2)
    assert reports.runs() == {"2"}
    assert reports.accounts.mark_bytes - before == booked


def test_a_user_with_too_many_loses_the_most_silent() -> None:
    """And nobody else does."""
    reports = Reports()
    reports.tell(0, user=2)
    for run in range(STREAM_QUERIES_PER_USER_MAX):
        reports.tell(run)
    reports.tell(0)  # heard again
    assert len(reports.runs()) == STREAM_QUERIES_PER_USER_MAX
    reports.tell(STREAM_QUERIES_PER_USER_MAX)
    runs = [one.run for one in reports.queries.of(1, reports.clock)]
    assert len(runs) == STREAM_QUERIES_PER_USER_MAX + 1
    assert "1" not in runs
    assert runs.count("0") == 2


def test_a_full_table_ignores_new_queries_until_others_are_silent() -> None:
    reports = Reports()
    for number in range(STREAM_QUERIES_MAX):
        reports.tell(number, user=number // STREAM_QUERIES_PER_USER_MAX, stream=number)
    reports.tell(0, user=99, stream=STREAM_QUERIES_MAX)
    assert reports.runs(STREAM_QUERIES_MAX) == set()
    reports.tell(1, user=1, stream=STREAM_QUERIES_PER_USER_MAX)
    reports.clock.advance(STREAM_QUERY_SILENCE_MS)
    reports.tell(0, user=99, stream=STREAM_QUERIES_MAX)
    assert reports.runs(STREAM_QUERIES_MAX) == {"0"}


def test_a_broker_without_memory_for_marks_ignores_them() -> None:
    reports = Reports()
    reports.accounts.mark_bytes_max = 0
    reports.tell(1)
    assert reports.runs() == set()
