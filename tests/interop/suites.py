"""Runs the clients' own tests against a broker: those that their released sources bring along.

    .venv/bin/python tests/interop/suites.py [--only NAME]

The sources of the installed versions are downloaded by pip and unpacked to a temporary directory;
their tests for RabbitMQ run on a broker process of this build, unchanged.  A test that is left out
stands below with its reason, and is counted.

Not all clients bring tests along that can run so: pika releases none, those of dramatiq lack their
fixtures, those of Celery want Redis too; those of aio-pika, aiormq, FastStream and taskiq-aio-pika
are not tried yet.  What these clients do is in the tests beside this file.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

if __name__ == "__main__":
    # The helpers that all tests share lie one folder up.
    sys.path[0] = str(Path(__file__).parents[1])

from support.brokers.broker_process import BrokerProcess

COUNTS = re.compile(r"(\d+) (passed|failed|skipped|deselected|errors?|xfailed|xpassed)")


@dataclass(frozen=True)
class Suite:
    """A client's tests: where they lie in its sources.

    `left_out` holds words: a test with one in its name is left out for the reason beside it.
    """

    package: str
    tests: str
    left_out: dict[str, str] = field(default_factory=dict)


SUITES = (
    Suite(
        "amqp",
        "t/integration/test_rmq.py",
        {"tls": "there is no TLS here; two of them ask a host of the Internet"},
    ),
    Suite("kombu", "t/integration/test_py_amqp.py"),
)


def fetch(package: str, place: Path) -> Path:
    """Download and unpack the sources of the installed version; return their directory."""
    version = importlib.metadata.version(package)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    wanted = ["--no-deps", "--no-build-isolation", "--no-binary", ":all:", f"{package}=={version}"]
    subprocess.run([*pip, "download", "--dest", str(place), *wanted], check=True)
    (archive,) = place.glob(f"{package}-*.tar.gz")
    with tarfile.open(archive) as sources:
        sources.extractall(place, filter="data")
    return place / archive.name.removesuffix(".tar.gz")


def run(suite: Suite, place: Path) -> dict[str, int]:
    """Run a suite on a broker of its own; return how many tests ended how."""
    sources = fetch(suite.package, place)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rfEs"]
    # Their own settings want plugins that are not here.
    command += ["-c", os.devnull, "--rootdir", str(sources), "-W", "ignore", "--timeout", "120"]
    command += ["-o", "python_classes=test_*"]
    if suite.left_out:
        command += ["-k", " and ".join(f"not {word}" for word in suite.left_out)]
    with BrokerProcess(place / "data") as broker:
        theirs = {"RABBITMQ_HOST": broker.host, "RABBITMQ_5672_TCP": str(broker.port)}
        done = subprocess.run(
            [*command, suite.tests], cwd=sources, env=os.environ | theirs, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
    sys.stdout.write(done.stdout)
    last = done.stdout.strip().splitlines()[-1]
    return {what: int(count) for count, what in COUNTS.findall(last)}


def main() -> int:
    """Run the suites and print the counts; 1 where a test failed or none passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", choices=[suite.package for suite in SUITES])
    only = parser.parse_args().only
    bad = False
    for suite in SUITES:
        if only in (None, suite.package):
            with tempfile.TemporaryDirectory(prefix="suites-") as place:
                counts = run(suite, Path(place))
            bad = bad or not counts.get("passed") or bool({"failed", "error", "errors"} & {*counts})
            version = importlib.metadata.version(suite.package)
            said = ", ".join(f"{count} {what}" for what, count in counts.items())
            sys.stdout.write(f"{suite.package} {version}, {suite.tests}: {said}\n")
            for word, reason in suite.left_out.items():
                sys.stdout.write(f"  left out: {word}: {reason}\n")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
