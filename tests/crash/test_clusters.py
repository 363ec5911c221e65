"""Clusters whose members or whose broker are killed: nothing is missing, and order is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from leveret import BlockingConsumer, BlockingProducer, ClusterMessage
from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker, unique
from support.clusters.cluster_load import Ledger, run
from support.clusters.handled import SECONDS
from support.wire.cut_proxy import CutProxy


def test_members_killed_and_added_under_load(tmp_path: Path) -> None:
    need_own_broker()
    with BrokerProcess(tmp_path) as broker:
        report = run(broker.uri, unique("topic"), messages=3000, kills=6, seed=1, say=print)
    assert report.holds, "\n".join(report.lines())
    assert (report.kills, report.leaves > 0) == (6, report.joins > report.kills)


def test_a_broker_killed_and_started_again_under_clusters(tmp_path: Path) -> None:
    need_own_broker()
    topic, keys, count = unique("topic"), 20, 1500
    ledgers = {"ordered": Ledger(in_order=True), "shared": Ledger(in_order=False)}
    grown = threading.Condition()

    def handler(cluster: str) -> Callable[[ClusterMessage], None]:
        def on_message(message: ClusterMessage) -> None:
            with grown:
                ledgers[cluster].note(message.key, int(message.body), message.redelivered)
                grown.notify_all()

        return on_message

    def handled(least: int) -> None:
        with grown:
            enough = grown.wait_for(
                lambda: all(len(ledger.handled) >= least for ledger in ledgers.values()), SECONDS
            )
        assert enough, {name: len(ledger.handled) for name, ledger in ledgers.items()}

    with BrokerProcess(tmp_path) as broker, CutProxy(broker.port) as proxy, ExitStack() as open_:
        uri = f"amqp://guest:guest@127.0.0.1:{proxy.port}/%2F"
        for cluster, partitions in (("ordered", 4), ("shared", 0)):
            for _ in range(2):
                member = BlockingConsumer(
                    topic,
                    cluster=cluster,
                    on_message=handler(cluster),
                    uri=uri,
                    partitions=partitions,
                )
                open_.enter_context(member)
        producer = open_.enter_context(BlockingProducer(topic, uri=uri, window=50))
        delivering = open_.enter_context(ThreadPoolExecutor(1)).submit(
            producer.deliver_many,
            [(b"%d" % (number // keys), f"key-{number % keys}") for number in range(count)],
        )
        for least in (200, 700):
            handled(least)
            broker.kill()
            broker.start()
            proxy.lead_to(broker.port)
        assert all(one.is_confirmed for one in delivering.result(SECONDS))
        handled(count)
    for ledger in ledgers.values():
        assert len(ledger.handled) == count
        # What a killed broker delivered and had not confirmed is sent again, as a new message.
        assert ledger.early == []
