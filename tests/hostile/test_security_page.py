"""The worked example of the page on security runs as it stands there, and does what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess
from support.brokers.brokers import need_own_broker
from support.wire import raw

PAGE = Path(__file__).parents[2] / "docs/explanation/security.md"
#: Each command of the page is a process.
pytestmark = pytest.mark.commands
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def example() -> list[str]:
    """Return the commands of the worked example, block by block."""
    section = PAGE.read_text().split("### A worked example\n")[1].split("\n### ")[0]
    return BLOCK.findall(section)


def run(commands: str, broker: BrokerProcess, place: Path) -> str:
    """Run commands in a shell; return what they print.  Raises: CalledProcessError."""
    environment = {name: os.environ[name] for name in ("LANG", "HOME") if name in os.environ} | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "LEVERET_DATA_DIR": str(broker.data_dir),
        "BROKER": f"{broker.host}:{broker.port}",
    }
    done = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", commands],
        cwd=place, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_the_worked_example_does_what_it_says(tmp_path: Path) -> None:
    need_own_broker()
    made, used, refused = example()
    with BrokerProcess(tmp_path / "data") as broker:
        assert run(made, broker, tmp_path) == ""
        # What the later blocks use is defined in the second one.
        printed = run(used + refused, broker, tmp_path)
        attempts = [line for line in refused.splitlines() if "|| echo" in line]
        assert len(attempts) == refused.count("\n") > 0
        for line in attempts:
            said = line.split("|| echo ")[1].strip('"')
            assert printed.count(said) == 1, printed
        assert '{"id": 1}' in printed.splitlines()
        # Only who is refused is told a reason; nobody else printed an error.
        reasons = [line for line in printed.splitlines() if "ACCESS_REFUSED" in line]
        assert len(reasons) >= len(attempts) - 1, printed
        judge(broker, tmp_path)


def judge(broker: BrokerProcess, place: Path) -> None:
    """Look by a client of the test's own: no secret is open, and a bounded queue refuses."""
    for path in place.glob("*.password"):
        assert path.stat().st_mode & 0o077 == 0
    password = (place / "shop-deploy.password").read_text().strip()
    with raw.Connection(broker.host, broker.port) as connection:
        connection.handshake(raw.Login("shop-deploy", password, "shop")).open_channel(1)
        connection.declare(1, "orders.bounded", durable=True, arguments={"x-max-length": 1})
        connection.call(1, "queue.bind", queue="orders.bounded", exchange="orders", routing_key="b")
        connection.call(1, "confirm.select")
        outcomes = []
        for _ in range(2):
            connection.send(raw.publish(1, "orders", "b", b"x"))
            outcomes.append(connection.next_method().name)
        # The operator policy says reject-publish.
        assert outcomes == ["basic.ack", "basic.nack"]
    with raw.Connection(broker.host, broker.port) as stranger:
        stranger.start(raw.Login())
        assert stranger.expect(0, "connection.close").code == 403
