"""AMQP over TLS: throughput beside RabbitMQ, handshakes that stall, and certificates under load.

    .venv/bin/python bench/tls.py [--seconds 5] [--rounds 3] [--stalled 1000] [--json]

Three parts:

1. Messages of 1 KiB, acknowledged automatically, by `leveret perf` over TLS 1.3 with the same
   certificate on both brokers, which take turns round by round.  To be at least 3 times RabbitMQ's.
2. A client connects, logs in and opens a channel while peers hold so many handshakes open, a
   quarter each after no byte, after the head of a record, in the middle of the ClientHello and
   after it.  To take less than 100 ms.
3. A producer and a consumer run while the certificate is replaced each half second.  None of the
   two connections is to end, and every message is to arrive.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import rabbitmq
import sides

from leveret.client import blocking
from support.brokers.broker_process import BrokerProcess
from support.brokers.secure import Pki, client_hello, port_of, stalled, uri_of

RATIO_TARGET: Final = 3.0
CONNECT_MS_TARGET: Final = 100.0

#: Connections that are made one after the other beside those that stall.
CONNECTS: Final = 50

#: How often the certificate is replaced, in seconds.
ROTATION_SECONDS: Final = 0.5

PERF: Final = ("-m", "leveret", "perf", "-j", "-a", "-s", "1KiB")


def perf(uri: str, pki: Pki, *flags: str) -> subprocess.Popen[str]:
    """Start a load of 1 KiB with automatic acks."""
    return subprocess.Popen(
        [sys.executable, *PERF, "-U", uri, *flags],
        env=os.environ | {"SSL_CERT_FILE": str(pki.authority.certificate)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def ended(load: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the figures of a load when it has ended.  Raises: GeneratorError."""
    out, error = load.communicate()
    if load.returncode != 0:
        raise sides.GeneratorError(f"exit code {load.returncode}: {error.strip()}")
    found: dict[str, Any] = json.loads(out)
    return found


def rabbit(pki: Pki, directory: Path) -> tuple[rabbitmq.RabbitMQ, int]:
    """Return a RabbitMQ with the same certificate, not started, and its port for TLS."""
    (port,) = rabbitmq.free_ports(1)
    lines = [
        f"listeners.ssl.1 = 127.0.0.1:{port}",
        f"ssl_options.cacertfile = {pki.authority.certificate}",
        f"ssl_options.certfile = {pki.broker.certificate}",
        f"ssl_options.keyfile = {pki.broker.key}",
        "ssl_options.versions.1 = tlsv1.3",
        "ssl_options.verify = verify_none",
    ]
    return rabbitmq.RabbitMQ(directory, configuration="\n".join(lines) + "\n"), port


def throughput(pki: Pki, directory: Path, seconds: float, rounds: int) -> dict[str, Any]:
    """Return the rates of both brokers in each round, and their ratios."""
    other, other_port = rabbit(pki, directory)
    rates: dict[str, list[float]] = {"leveret": [], "rabbitmq": []}
    with pki.broker_process(directory / "throughput") as ours, other:
        uris = {"leveret": uri_of(port_of(ours)), "rabbitmq": uri_of(other_port)}
        for _ in range(rounds):
            for name, uri in uris.items():
                found = ended(perf(uri, pki, "-z", str(seconds)))
                rates[name].append(float(found["delivered_per_second"]))
    pairs = zip(rates["leveret"], rates["rabbitmq"], strict=True)
    ratios = [round(ours / theirs, 2) for ours, theirs in pairs]
    return rates | {"ratios": ratios, "ratio": statistics.median(ratios)}


def connects(pki: Pki, directory: Path, count: int) -> dict[str, float]:
    """Return how long a connection takes beside so many stalled handshakes, in ms."""
    times: list[float] = []
    context = pki.trusting()
    with pki.broker_process(directory / "stalled", handshake_seconds="300") as process:
        port = port_of(process)
        with stalled(port, count, client_hello(context)):
            for _ in range(CONNECTS):
                began = time.perf_counter()
                with blocking.connect(uri_of(port), ssl=context, recover=False) as connection:
                    connection.channel()
                    times.append((time.perf_counter() - began) * 1000)
    return {"stalled": count, "median_ms": statistics.median(times), "max_ms": max(times)}


def rotate(process: BrokerProcess, pki: Pki, folder: Path, load: subprocess.Popen[str]) -> int:
    """Replace the certificate until a load ends; return how often."""
    times = 0
    while load.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            load.wait(ROTATION_SECONDS)
        times += 1
        newer = pki.authority.sign(f"newer-{times}", "DNS:localhost,IP:127.0.0.1")
        for made, name in ((newer.key, "key.pem"), (newer.certificate, "certificate.pem")):
            shutil.copy(made, folder / f"{name}.new")
            (folder / f"{name}.new").rename(folder / name)
        os.kill(process.pid, signal.SIGHUP)
    return times


def rotation(pki: Pki, directory: Path, seconds: float) -> dict[str, int]:
    """Return how often the certificate was replaced under load, and what became of messages."""
    folder = directory / "rotated"
    folder.mkdir()
    shutil.copy(pki.broker.certificate, folder / "certificate.pem")
    shutil.copy(pki.broker.key, folder / "key.pem")
    process = pki.broker_process(
        directory / "rotation",
        tls_certificate=str(folder / "certificate.pem"),
        tls_key=str(folder / "key.pem"),
    )
    with process:
        count = int(seconds * 20_000)
        load = perf(uri_of(port_of(process)), pki, "-C", str(count), "-r", "20000")
        asked = rotate(process, pki, folder, load)
        # A connection that is dropped ends the load, and with it this bench.
        found = ended(load)
        taken = sum("certificates replaced" in line for line in process.output.splitlines())
    return {
        "asked": asked,
        "replaced": taken,
        "published": int(found["published"]),
        "delivered": int(found["delivered"]),
    }


def main() -> int:
    """Measure, print, and return how many figures miss their targets."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--stalled", type=int, default=1000)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-tls-") as name:
        directory = Path(name)
        (directory / "pki").mkdir()
        pki = Pki(directory / "pki")
        rates = throughput(pki, directory, options.seconds, options.rounds)
        stalled = connects(pki, directory, options.stalled)
        rotated = rotation(pki, directory, options.seconds)
    if options.json:
        print(json.dumps({"throughput": rates, "stalled": stalled, "rotation": rotated}))
    else:
        print(" ".join(f"{name} {value}" for name, value in sides.machine().items()))
        ours, theirs = (statistics.median(rates[name]) for name in ("leveret", "rabbitmq"))
        print(
            f"1 KiB over TLS, automatic acks: Leveret {ours:,.0f} msg/s, RabbitMQ {theirs:,.0f}; "
            f"ratio of each round {rates['ratios']}, median {rates['ratio']}"
        )
        print(
            f"connect, login and channel beside {stalled['stalled']} stalled handshakes: median "
            f"{stalled['median_ms']:.1f} ms, longest of {CONNECTS} {stalled['max_ms']:.1f} ms"
        )
        print(
            f"certificate replaced {rotated['replaced']} times under load: published "
            f"{rotated['published']:,}, delivered {rotated['delivered']:,}, no connection dropped"
        )
    missed = [
        rates["ratio"] < RATIO_TARGET,
        stalled["max_ms"] >= CONNECT_MS_TARGET,
        rotated["published"] != rotated["delivered"] or rotated["replaced"] == 0,
    ]
    return sum(missed)


if __name__ == "__main__":
    raise SystemExit(main())
