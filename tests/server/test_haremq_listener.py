"""The listener for HareMQ's clients: off unless asked for, and clear about what it needs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess, BrokerProcessError
from support.wire.hare import HareClient, hare_port


@pytest.fixture
def without_protobuf(tmp_path: Path) -> list[str]:
    """What runs a command with a Python that has no protobuf."""
    package = tmp_path / "hidden" / "google"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('no protobuf here')\n")
    return ["env", f"PYTHONPATH={package.parent}", f"PATH={os.environ['PATH']}"]


def test_without_the_setting_there_is_no_listener_and_no_protobuf(
    tmp_path: Path, without_protobuf: list[str]
) -> None:
    with BrokerProcess(tmp_path / "data", wrapper=without_protobuf) as broker:
        assert "HareMQ" not in broker.output


def test_without_protobuf_the_extra_is_named(tmp_path: Path, without_protobuf: list[str]) -> None:
    flags = ["--haremq-port", "0"]
    broker = BrokerProcess(tmp_path / "data", wrapper=without_protobuf, flags=flags)
    with pytest.raises(BrokerProcessError, match="install the extra `haremq`") as caught:
        broker.start()
    # It is said before anything else begins: no client of HTTP or AMQP got through.
    assert "listening" not in str(caught.value)
    assert "recovered" not in str(caught.value)


def test_what_make_serve_and_make_demo_install_has_protobuf() -> None:
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    recipe = makefile.partition("%/.runtime:")[2].partition("\n\n")[0]
    assert "tools/requirements.py haremq" in recipe


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    flags = ["--haremq-port", "0"]
    with BrokerProcess(tmp_path / "data", flags=flags) as broker:
        taken = ["--haremq-port", str(hare_port(broker))]
        second = BrokerProcess(tmp_path / "other", flags=taken)
        with pytest.raises(
            BrokerProcessError, match="set haremq_host and haremq_port to another address"
        ):
            second.start()


def test_another_address_than_a_loopback_is_warned_about(tmp_path: Path) -> None:
    settings = {"haremq_port": "0", "haremq_host": "0.0.0.0"}  # noqa: S104 (that is the point)
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        assert "warning" in broker.expect_line("clients of HareMQ do not log in")


def test_user_and_vhost_are_settings(tmp_path: Path) -> None:
    settings = {"haremq_port": "0", "default_user": "boss", "default_vhost": "shop"}
    with (
        BrokerProcess(tmp_path / "data", settings=settings) as broker,
        HareClient(hare_port(broker)) as client,
    ):
        assert client.open()
    settings["haremq_user"] = "stranger"
    with (
        BrokerProcess(tmp_path / "data", settings=settings) as broker,
        HareClient(hare_port(broker)) as client,
    ):
        assert client.is_closed()
        assert "stranger" in broker.expect_line("access to vhost 'shop' refused")
