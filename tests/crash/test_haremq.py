"""A broker that is killed keeps what it told HareMQ's clients is done, where that was durable."""

from __future__ import annotations

from pathlib import Path

from broker_process import BrokerProcess
from brokers import need_own_broker
from hare import HareClient, hare_port

KILLS = 5
MESSAGES = 200


def test_a_message_without_properties_outlives_a_kill_in_a_durable_queue(tmp_path: Path) -> None:
    need_own_broker()
    with BrokerProcess(tmp_path / "data", flags=["--haremq-port", "0"]) as broker:
        with HareClient(hare_port(broker)) as client:
            assert client.open()
            assert client.exchange("x", 2, durable=True)
            assert client.queue("q", durable=True)
            assert client.bind("x", "q")
            fields = {"exchange_name": "x", "body": "bare"}
            assert client.call("basicPublishRequest", **fields).ok
            # These say of themselves that a restart may lose them.
            assert client.call("basicPublishRequest", **fields, properties={"id": "lost"}).ok
            broker.kill()
        broker.start()
        with HareClient(hare_port(broker)) as client:
            assert client.open()
            assert client.consume("q")
            assert client.publish("x", "last")
            assert [push.body for push in client.pushes(2)] == ["bare", "last"]


def test_confirmed_durable_messages_outlive_kills(tmp_path: Path) -> None:
    need_own_broker()
    kept: list[str] = []
    with BrokerProcess(tmp_path / "data", flags=["--haremq-port", "0"]) as broker:
        for kill in range(KILLS):
            with HareClient(hare_port(broker)) as client:
                assert client.open()
                assert client.exchange("x", 3, durable=True)
                assert client.queue("q", durable=True)
                assert client.bind("x", "q", "a.#")
                for number in range(MESSAGES):
                    body = f"{kill}:{number}"
                    # What is transient may be lost; it must not stand in the way.
                    assert client.publish("x", f"transient {body}", "a.b", mode=1)
                    assert client.publish("x", body, "a.b", id=body, mode=2)
                    kept.append(body)
                broker.kill()
            broker.start()
        with HareClient(hare_port(broker)) as client:
            assert client.open()
            assert client.consume("q")
            assert [push.body for push in client.pushes(len(kept))] == kept
            for one in kept:
                assert client.ack("q", one)
        broker.restart()
        with HareClient(hare_port(broker)) as client:
            assert client.open()
            assert client.consume("q")
            assert client.publish("x", "last", "a")
            assert [push.body for push in client.pushes(1)] == ["last"]
