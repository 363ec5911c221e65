"""The weight of the core: `tools/weight.py` counts it, and the figures must not grow.

Every number and every table here may only shrink.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import weight

#: The maximum of each figure, in `broker` and `session`.
MOST: Final = {
    "comparisons of spent cost with a budget": 0,
    "classes that only continue a loop": 0,
    "files that speak of steps": 1,
    "files that speak of steps, slices or rounds": 15,
    "deepest chain of classes": 5,
    "statements": 19_282,
}

#: Permitted bases with exactly one subclass, with the reasons.
SINGLE_BASES: Final[dict[str, str]] = {
    "app.parts.Parts": "the broker's own parts; those of an embedded broker differ in a few",
    "broker.backlog.owner.BacklogOwner": "the pages are below the queues that have them",
    "broker.backlog.ready.Ready": "for a queue without levels",
    "broker.scheduler.cancels.Cancellable": "the core is below the consumers that it cancels",
    "broker.scheduler.effects.ChunkReader": "reading files is the server's business",
    "broker.scheduler.effects.DeadMessage": "the core is below the queues that messages die in",
    "broker.attributes.message_events.MessageEvents": "queues record events, below their keeper",
    "broker.quotas.QuotaShare": "quotas are below the queues that they count",
    "broker.scheduler.stream_cache.CachedBlock": "the cache of all streams is below them",
    "broker.scheduler.scheduler.Dispatcher": "the scheduler is below what delivers",
    "broker.scheduler.link.Link": "the broker knows connections by it, and is below the sessions",
    "broker.publishers.publish_sessions.PublishCounter": "the broker is below the sessions",
    "broker.users.users.RightsWatcher": "the broker is below the HTTP API",
    "broker.queue.queue.QueueHost": "the vhost is above the queues that it holds",
    "broker.scheduler.task.EndWaiter": "the HTTP API, above the broker, waits for an end",
    "broker.scheduler.task.Task": "a client's request replies at its end; any other task does not",
    "broker.stream.stream.StreamWatcher": "the broker is below the HTTP API",
    "broker.exchanges.direct.DirectExchange": "a super stream has rules of its own",
    "broker.exchanges.fanout.FanoutExchange": "a type of its own; one that replays is one",
    "broker.exchanges.random.RandomExchange": "a type of its own, beside x-local-random",
    "broker.vhost.ids.StreamIds": "chance is handed in; tests count",
    "broker.vhost.staging_queues.StagingQueues": "the vhost is below what stages",
    "chunk.ChunkLayout": "where columns lie, apart from what stands in them",
    "client.asynchronous.channel.Channel": "spans need not be recorded",
    "client.blocking.calls.Waiting": "a confirm is waited for without a result",
    "client.blocking.channel.Channel": "spans need not be recorded",
    "client.events.OwnedChannel": "shells know the session's channel by it, and are imported by it",
    "client.options.MessageArguments": "the exchange of a topic cannot delay",
    "client.message.Processing": "spans need not be recorded",
    "client.message.Receiver": "messages are compiled; the shells' channels are not",
    "client.recovery.revival.NoDeliveries": "a channel that only asks gets nothing",
    "client.session.confirms.PublisherConfirms": "the tally is only for those who ask for it",
    "client.traces.Traces": "OpenTelemetry need not be installed",
    "config.Settings": "what was set, beside its sources",
    "errors.AccessRefused": "an error that has a cause of its own",
    "errors.PreconditionFailed": "an error that has a cause of its own",
    "pipelines.refusals.JobError": "an error that has a cause of its own",
    "pipelines.route.matchers.Fanout": "a type of its own; a random one takes one of the bindings",
    "server.listener.AmqpListener": "faults are only for tests of clients",
    "server.opening.handshakes.OpeningHandshake": "tests calculate without TLS",
    "server.runner.Observer": "a broker without a data directory keeps nothing in order",
    "session.connection_base.ConnectionBase": "what the parts of a connection see of it",
    "session.settings.Tokens": "chance is handed in; tests count",
    "spark.connection.retries.Pause": "tests wait for nothing",
    "spark.stream.batch.BatchReader": "Spark must not be told of filters that it does not know",
    "spark.transport.Interrupted": "an error that has a cause of its own",
    "store.disk.RealDisk": "a disk that is only read",
    "store.recovery.queue_state.KnownQueue": "tests of recovery keep no messages",
    "haremq.requests.HareCodec": "protobuf need not be installed",
}


def test_the_core_gets_no_heavier(sources: weight.Sources) -> None:
    found = dict(weight.table(sources, weight.ROOMS))
    grown = {figure: found[figure] for figure, most in MOST.items() if found[figure] > most}
    assert grown == {}, "tools/weight.py --list shows what is counted"


def test_a_base_with_one_heir_has_a_reason(sources: weight.Sources) -> None:
    found = {base for base, _heir in weight.single_bases(sources)}
    assert sorted(found - SINGLE_BASES.keys()) == []
    assert sorted(SINGLE_BASES.keys() - found) == [], "take it out of the table"


def written(folder: Path, **texts: str) -> weight.Sources:
    """Write modules of `leveret.broker` and read them."""
    for name, text in texts.items():
        path = folder / "leveret" / "broker" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return weight.read(folder / "leveret")


COMPARING: Final = '''"""Compares."""
def one(turn, last):
    while core.scheduler.spent < last:
        pass
    spent = core.scheduler.spent - 3
    if spent > last or len(last) > 3 or core.left_for_input <= 0 or core.spent > TX_COST_MAX:
        return min(core.scheduler.spent, 4) == 4
def two(self):
    return self._steps > 3 or self.size > 3
'''


def test_a_comparison_is_found_whatever_the_name(tmp_path: Path) -> None:
    found = list(weight.comparisons(written(tmp_path, a=COMPARING)))
    assert found == [
        "broker.a:3 core.scheduler.spent < last",
        "broker.a:6 spent > last",
        "broker.a:6 core.left_for_input <= 0",
    ]


LOOPS: Final = """
class Named:
    def __init__(self): ...
    def step(self): ...
    def ended(self): ...
    def _more(self): ...
class Budgeted:
    def purge(self, last): ...
    def reply(self): ...
class Whole:
    def step(self, steps): ...
    def size(self): ...
    def name(self): ...
class Range:
    def within(self, first, last): ...
"""


def test_a_class_that_continues_a_loop_is_found_whatever_its_name(tmp_path: Path) -> None:
    found = list(weight.loops(written(tmp_path, a=LOOPS)))
    assert found == ["broker.a:2 Named", "broker.a:7 Budgeted"]


def test_chains_and_heirs_are_followed_over_modules(tmp_path: Path) -> None:
    heir = (
        "from leveret.broker.a import One as First\nclass Two(First): ...\nclass Three(Two): ...\n"
    )
    sources = written(tmp_path, a="class One: ...\n", b=heir)
    assert weight.chain("broker.b.Three", sources.classes) == [
        "broker.b.Three",
        "broker.b.Two",
        "broker.a.One",
    ]
    assert weight.single_bases(sources) == [
        ("broker.a.One", "broker.b.Two"),
        ("broker.b.Two", "broker.b.Three"),
    ]


def test_statements_are_counted_without_imports_and_docstrings(tmp_path: Path) -> None:
    text = '"""Doc."""\nimport os\ndef one():\n    """Doc."""\n    if os:\n        return 1\n'
    assert weight.statements(written(tmp_path, a=text).trees.values()) == 3


def test_shares_of_time_are_words_and_no_calls(tmp_path: Path) -> None:
    texts = {
        "a": "x = STEPS_MAX\n",
        "b": "x = round(2)\n",
        "c": "#: A slice.\n",
        "d": "steppe = 1\n",
    }
    listed = weight.listings(written(tmp_path, **texts), ["broker"])
    assert listed["steps"] == ["broker.a 1"]
    assert listed["shares"] == ["broker.a 1", "broker.c 1"]
