"""Fixtures of the differential test: both brokers, one of each for all scripts; its figures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from differential import expected, pair
from differential.stage import Host


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Debian's RabbitMQ."""
    with pair.rabbitmq(tmp_path_factory.mktemp("rabbitmq")) as host:
        yield host


@pytest.fixture(scope="session")
def leveret(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Leveret."""
    with pair.leveret(tmp_path_factory.mktemp("leveret")) as host:
        yield host


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say how much was compared and what differed."""
    played = [
        dict(report.user_properties)
        for report in terminalreporter.getreports("passed") + terminalreporter.getreports("failed")
        if "differences" in dict(report.user_properties)
    ]
    if not played:
        return
    lines, differences, faults = (
        sum(int(str(one[name])) for one in played) for name in ("lines", "differences", "faults")
    )
    terminalreporter.write_line(
        f"{len(played)} scripts, {lines} lines of RabbitMQ's compared, {differences} differences, "
        f"{faults} of them not as listed in {len(expected.read())} reasons"
    )
