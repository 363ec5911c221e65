"""A broker that is killed keeps what it told HareMQ's clients is done, where that was durable."""

from __future__ import annotations

from pathlib import Path

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.wire.hare import HareClient, hare_port

KILLS = 5
MESSAGES = 200


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
                assert client.queue("bare", durable=True)
                assert client.bind("x", "bare")
                bare = {"exchange_name": "x", "body": f"bare {kill}"}
                assert client.call("basicPublishRequest", **bare).ok
                # Properties that name no mode say that a restart may lose the message.
                assert client.call("basicPublishRequest", **bare, properties={"id": "lost"}).ok
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
            assert client.open("c2")
            assert client.consume("bare")
            assert client.publish("x", "bare last")
            pushed = client.pushes(len(kept) + KILLS + 1)[len(kept) :]
            assert [push.body for push in pushed] == [
                *(f"bare {n}" for n in range(KILLS)),
                "bare last",
            ]
        broker.restart()
        with HareClient(hare_port(broker)) as client:
            assert client.open()
            assert client.consume("q")
            assert client.publish("x", "last", "a")
            assert [push.body for push in client.pushes(1)] == ["last"]
