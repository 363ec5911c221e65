"""`leveret perf` against a running broker: what it counts is what it moved."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from leveret.cli import exits
from support.brokers.broker_process import BrokerProcess
from support.commands.command_process import Command


def figures(result: subprocess.CompletedProcess[bytes]) -> dict[str, object]:
    """Return what a run printed as JSON."""
    assert result.returncode == 0, result.stderr
    found: dict[str, object] = json.loads(result.stdout)
    return found


@pytest.mark.parametrize(
    "line",
    [
        "-a",
        "-A 1 -q 1",
        "-A 7 -q 100 -c 10 -f persistent",
        "-x 2 -y 3 -a -c 1",
        "-s 0 -a",
        "-s 300000 -A 10 -c 5 -C 50",
        "-a -l -r 2000",
        "-a -f mandatory -c 100",
    ],
)
def test_all_that_is_published_arrives(leveret: Command, line: str) -> None:
    options = line.split()
    count = 500
    if "-C" not in options:
        options += ["-C", str(count)]
    else:
        count = int(options[options.index("-C") + 1])
    producers = 2 if "-x" in options else 1
    found = figures(leveret("perf", "-j", *options))
    assert found["published"] == found["delivered"] == count * producers
    assert found["confirmed"] == (count * producers if "-c" in options else 0)
    assert (found["nacked"], found["returned"]) == (0, 0)
    assert ("latency_us" in found) == ("-l" in options)


def test_bodies_have_the_size(leveret: Command) -> None:
    found = figures(leveret("perf", "-j", "-a", "-s", "1000", "-C", "100"))
    assert found["delivered_bytes"] == 100_000


def test_the_queue_is_deleted_unless_it_was_there(leveret: Command, queue: str) -> None:
    figures(leveret("perf", "-j", "-a", "-C", "1", "-u", "perf-own"))
    assert leveret("get", "perf-own").returncode == exits.REFUSED
    found = figures(leveret("perf", "-j", "-p", "-u", queue, "-C", "10", "-y", "0"))
    assert (found["published"], found["delivered"]) == (10, 0)
    found = figures(leveret("perf", "-j", "-p", "-u", queue, "-x", "0", "-D", "10"))
    assert (found["published"], found["delivered"]) == (0, 10)
    assert leveret("get", queue).returncode == exits.NOTHING


def test_all_is_acked_at_the_end(leveret: Command, queue: str) -> None:
    figures(leveret("perf", "-j", "-p", "-u", queue, "-C", "103", "-A", "10"))
    assert leveret("get", queue).returncode == exits.NOTHING


def test_a_rate_is_kept(leveret: Command) -> None:
    found = figures(leveret("perf", "-j", "-a", "-z", "1", "-r", "1000"))
    published = found["published"]
    assert isinstance(published, int)
    assert 0 < published <= 1100


def test_rates_and_a_summary_are_printed(leveret: Command) -> None:
    result = leveret("perf", "-a", "-z", "1.2", "-c", "100", "-l")
    assert result.returncode == 0
    *seconds, ran, _, _, delivered, latency = result.stdout.decode().splitlines()
    assert seconds
    assert all("published" in line and "confirmed" in line for line in seconds)
    assert ran.startswith("ran 1.")
    assert "MiB/s of bodies" in delivered
    assert latency.startswith("latency min ")


def test_what_the_broker_refuses_is_told(leveret: Command, queue: str) -> None:
    missing = leveret("perf", "-p", "-u", "nowhere", "-C", "1")
    assert missing.returncode == exits.REFUSED
    assert b"404 NOT_FOUND" in missing.stderr
    differs = leveret("perf", "-u", queue, "--queue-argument", "x-queue-type=stream", "-C", "1")
    assert differs.returncode == exits.REFUSED
    assert b"406 PRECONDITION_FAILED" in differs.stderr


def test_an_interrupt_ends_it_with_a_summary(broker: BrokerProcess) -> None:
    command = [sys.executable, "-m", "leveret", "perf", "-h", broker.uri, "-a", "-u", "interrupted"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        os.kill(process.pid, signal.SIGINT)
        rest = process.stdout.read()
    assert process.returncode == 0
    assert "delivered" in rest
