"""Fixtures of the differential test: the brokers, one of each for all scripts; its figures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from rabbitmq import RabbitMQError
from rabbitmq_next import NextRabbitMQ

from differential import expected, pair
from differential.stage import Host

_next = pytest.StashKey[str]()


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Debian's RabbitMQ."""
    with pair.rabbitmq(tmp_path_factory.mktemp("rabbitmq")) as host:
        yield host


@pytest.fixture(scope="session")
def rabbitmq_next(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[Host | None]:
    """The RabbitMQ of Debian's next release; None if it cannot be run: the summary says why."""
    with contextlib.ExitStack() as stack:
        try:
            one = pair.rabbitmq(tmp_path_factory.mktemp("next"), NextRabbitMQ)
            host = stack.enter_context(one)
        except RabbitMQError as error:
            pytestconfig.stash[_next] = f"Debian's next RabbitMQ was NOT compared: {error}"
            yield None
            return
        pytestconfig.stash[_next] = f"Debian's next RabbitMQ is {host.version}"
        if not expected.is_recorded(host):
            pytestconfig.stash[_next] += (
                f": its differences fail nothing, only those of {expected.RECORDED} are recorded"
            )
        yield host


@pytest.fixture(scope="session")
def leveret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Leveret."""
    with pair.leveret(tmp_path_factory.mktemp("leveret")) as host:
        yield host


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Say how much was compared, with which versions, and what differed."""
    played = [
        dict(report.user_properties)
        for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
        if "versions" in dict(report.user_properties)
    ]
    versions = sorted({str(v) for one in played for v in str(one["versions"]).split()})
    for version in versions:
        lines, differences, faults = (
            sum(int(str(one.get(f"{name} {version}", 0))) for one in played)
            for name in ("lines", "differences", "faults")
        )
        terminalreporter.write_line(
            f"{len(played)} scripts, {lines} lines of RabbitMQ {version}'s compared, "
            f"{differences} differences, {faults} of them not as listed in "
            f"{len(expected.read())} reasons"
        )
        for one in played:
            if shown := one.get(f"shown {version}"):
                terminalreporter.write_line(str(shown))
    if _next in config.stash:
        terminalreporter.write_line(config.stash[_next])
