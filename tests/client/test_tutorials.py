"""The programs of the tutorials on a real broker, and the pages that show them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.brokers.broker_process import BrokerProcess

pytestmark = pytest.mark.commands

PAGES = Path(__file__).parents[2] / "docs/tutorials"
NAMES = sorted(path.stem for path in (PAGES / "programs").glob("*.py"))

#: How long a program may take on a busy machine.
SECONDS_MAX = 300.0

Run = Callable[..., "Program"]


class Program:
    """A program of a tutorial in a process of its own; its output is read by the line."""

    def __init__(self, uri: str, name: str, *arguments: str) -> None:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("LEVERET_")}
        self._process = subprocess.Popen(
            [sys.executable, str(PAGES / "programs" / f"{name}.py"), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**kept, "LEVERET_URI": uri},
        )

    def line(self) -> str:
        """Wait for the next line and return it, empty at the end of the program."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip("\n")

    def all_lines(self) -> list[str]:
        """Wait for the end, which has to be a good one, and return what was printed."""
        lines = self._rest()
        assert self._process.returncode == 0, lines
        return lines

    def interrupt(self) -> list[str]:
        """End the program as Ctrl-C does; return what it had printed."""
        self._process.send_signal(signal.SIGINT)
        return self._rest()

    def _rest(self) -> list[str]:
        """Return what is printed from here on."""
        assert self._process.stdout is not None
        lines = self._process.stdout.read().splitlines()
        self._process.wait(SECONDS_MAX)
        return lines

    def stop(self) -> None:
        """End the program."""
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("data")) as process:
        yield process


@pytest.fixture
def run(broker: BrokerProcess) -> Iterator[Run]:
    """Starts programs: `run("hello", "send")`; they end with the test."""
    programs: list[Program] = []

    def start(name: str, *arguments: str) -> Program:
        programs.append(Program(broker.uri, name, *arguments))
        return programs[-1]

    yield start
    for program in programs:
        program.stop()


# -- the programs ----------------------------------------------------------------------------------


def test_hello(run: Run) -> None:
    receiver = run("hello", "receive")
    assert receiver.line() == "waiting for greetings"
    assert run("hello", "send").all_lines() == ["sent a greeting"]
    assert receiver.line() == "received: Hello, hare!"
    receiver.interrupt()
    # What is sent while nobody receives waits.
    run("hello", "send").all_lines()
    receiver = run("hello", "receive")
    assert receiver.line() == "waiting for greetings"
    assert receiver.line() == "received: Hello, hare!"


def test_work_queues(run: Run) -> None:
    workers = [run("work_queues", "work") for _ in range(2)]
    assert [worker.line() for worker in workers] == ["waiting for tasks"] * 2
    added = run("work_queues", "add", "10", "100", "1000", "10000").all_lines()
    assert added == ["added: 10", "added: 100", "added: 1000", "added: 10000"]
    # A worker that has done its part answers the next task; both have some.
    lines = [workers[0].line(), workers[1].line()]
    third = run("work_queues", "add", "2", "3").all_lines()
    assert third == ["added: 2", "added: 3"]
    lines += workers[0].interrupt()
    expected = {10: 4, 100: 25, 1000: 168, 10000: 1229, 2: 0, 3: 1}
    wanted = {f"{count} primes below {limit}" for limit, count in expected.items()}
    # What the one left undone goes to the other.
    while set(lines) != wanted:
        line = workers[1].line()
        assert line in wanted
        lines.append(line)


def test_publish_subscribe(run: Run) -> None:
    assert run("publish_subscribe", "publish", "unheard").all_lines() == ["published: unheard"]
    listeners = [run("publish_subscribe", "listen") for _ in range(2)]
    assert [listener.line() for listener in listeners] == ["listening"] * 2
    run("publish_subscribe", "publish", "the lettuce is ripe").all_lines()
    assert [listener.line() for listener in listeners] == ["news: the lettuce is ripe"] * 2


def test_routing(run: Run) -> None:
    errors = run("routing", "listen", "error")
    both = run("routing", "listen", "warning", "error")
    assert errors.line() == "listening to error"
    assert both.line() == "listening to warning, error"
    for level in ("info", "warning", "error"):
        said = run("routing", "log", level, f"an {level}").all_lines()
        assert said == [f"logged as {level}: an {level}"]
    assert errors.line() == "[error] an error"
    assert [both.line(), both.line()] == ["[warning] an warning", "[error] an error"]


def test_topics(run: Run) -> None:
    watcher = run("topics", "watch", "*.temperature", "cellar.#")
    assert watcher.line() == "watching *.temperature and cellar.#"
    for key, value in (
        ("kitchen.temperature", "21"),
        ("kitchen.humidity", "40"),
        ("kitchen.oven.temperature", "180"),
        ("cellar.temperature", "9"),
        ("cellar.north.water", "3"),
    ):
        assert run("topics", "report", key, value).all_lines() == [f"reported {key}: {value}"]
    assert [watcher.line() for _ in range(3)] == [
        "kitchen.temperature = 21",
        "cellar.temperature = 9",
        "cellar.north.water = 3",
    ]


def test_rpc(run: Run) -> None:
    service = run("rpc", "serve")
    assert service.line() == "serving"
    assert run("rpc", "ask", "12").all_lines() == ["the square of 12 is 144"]
    assert run("rpc", "ask", "-3").all_lines() == ["the square of -3 is 9"]
    assert [service.line(), service.line()] == ["answered 12", "answered -3"]


def test_clusters(run: Run) -> None:
    assert run("clusters", "order", "early").all_lines() == ["early: returned"]
    ann, bob = run("clusters", "join", "billing", "ann"), run("clusters", "join", "billing", "bob")
    sue = run("clusters", "join", "shipping", "sue")
    assert ann.line() == "billing ann is ready"
    assert bob.line() == "billing bob is ready"
    assert sue.line() == "shipping sue is ready"
    orders = ["carrots", "radishes", "leeks", "beans"]
    said = run("clusters", "order", *orders).all_lines()
    assert said == [f"{order}: confirmed" for order in orders]
    # Members take turns: each of billing has two orders, and shipping has all.
    billed = [ann.line(), ann.line(), bob.line(), bob.line()]
    assert sorted(line.split(": ")[1] for line in billed) == sorted(orders)
    assert sorted(sue.line() for _ in orders) == sorted(f"shipping sue: {o}" for o in orders)


# -- the pages -------------------------------------------------------------------------------------


def test_every_program_has_a_page_and_a_test() -> None:
    assert (
        sorted(
            ["hello", "work_queues", "publish_subscribe", "routing", "topics", "rpc", "clusters"]
        )
        == NAMES
    )
    assert [name for name in NAMES if f"test_{name}" not in globals()] == []


@pytest.mark.parametrize("name", NAMES)
def test_the_page_shows_the_program(name: str) -> None:
    page = (PAGES / f"{name.replace('_', '-')}.md").read_text()
    shown = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert shown == [(PAGES / "programs" / f"{name}.py").read_text()]
    # It says in two lines how the same is done with pika.
    pika = page.split("\n## The same with pika\n\n")[1]
    assert len(pika.splitlines()) == 2


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_of_the_page_are_those_of_the_program(name: str) -> None:
    page = (PAGES / f"{name.replace('_', '-')}.md").read_text()
    roles = re.search(r"role = \{(.*)\}\[", (PAGES / "programs" / f"{name}.py").read_text())
    assert roles is not None
    run_by_page = set(
        re.findall(rf"^python docs/tutorials/programs/{name}\.py (\w+)", page, re.MULTILINE)
    )
    assert run_by_page == set(re.findall(r'"(\w+)":', roles[1]))
