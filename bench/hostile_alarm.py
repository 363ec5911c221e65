"""What messages that wait for years cost a neighbour who publishes, also after a restart.

    .venv/bin/python bench/hostile_alarm.py [--seconds 20] [--memory 200000000] [--python PATH]

A broker that may hold 200 MB has a neighbour who publishes persistent messages to a queue that is
consumed, one after the other, each when the one before is confirmed.  Printed are the latencies of
the confirms before, while and after a client publishes messages of 1 KiB with a delay of ten years
as fast as the broker takes them, and after a kill and a start; with how many of them wait, the
broker's resident set, and how long the start took.

The exit code is 1 where a confirm took longer than `--most` ms: publishers were blocked.

`bench/hostile.py` runs the attack beside its other neighbour.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import psutil
import sides
from target import Target

from support.brokers.broker_process import BrokerProcess
from support.wire import raw

#: What `hostile.py` starts the broker of the attack with.
SETTINGS: Final = {"delayed-for-years": {"memory_bytes_max": "200000000"}}

_BATCH: Final = 200
_YEARS: Final = {"x-delay": 10 * 365 * 86_400_000}
_GUEST: Final = raw.Login("guest", "guest")

#: What the neighbour waits between two publishes.
_PAUSE_SECONDS: Final = 0.005


#: How many messages the attack has published.
_published = multiprocessing.get_context("fork").Value("q", 0)


def attack_delayed_for_years(target: Target, login: raw.Login | None = None) -> None:
    """Messages of 1 KiB with a delay of ten years, as fast as the broker takes them."""
    one = raw.publish(1, "years", "k", bytes(1024), headers=_YEARS, delivery_mode=2)
    with contextlib.suppress(OSError, raw.Closed):
        connection = target.log_in() if login is None else target.log_in(login)
        with connection:
            connection.open_channel(1)
            wish = {"x-delayed-type": "direct"}
            values = {"type": "x-delayed-message", "durable": True, "arguments": wish}
            connection.call(1, "exchange.declare", exchange="years", **values)
            while not target.over:
                connection.send(one * _BATCH)
                connection.sync(1)
                _published.value += _BATCH


def confirms(broker: BrokerProcess, seconds: float) -> list[float]:
    """Return the latencies in ms of one publisher's confirms over some seconds."""
    found: list[float] = []
    with raw.connect(broker.uri) as publisher, raw.connect(broker.uri) as consumer:
        publisher.open_channel(1)
        consumer.open_channel(1)
        consumer.declare(1, "neighbour", durable=True)
        consumer.call(1, "basic.consume", queue="neighbour", no_ack=True)
        publisher.call(1, "confirm.select")
        message = raw.publish(1, "", "neighbour", bytes(100), delivery_mode=2)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            begun = time.monotonic()
            publisher.send(message)
            publisher.expect(1, "basic.ack")
            found.append((time.monotonic() - begun) * 1000)
            consumer.expect(1, "basic.deliver")
            time.sleep(_PAUSE_SECONDS)
    return found


def show(when: str, broker: BrokerProcess, found: list[float]) -> float:
    """Print a row; return the longest latency."""
    p50, p99 = statistics.median(found), statistics.quantiles(found, n=100)[98]
    resident = psutil.Process(broker.pid).memory_info().rss / 1e6
    times = f"p50 {p50:7.2f}  p99 {p99:7.2f}  max {max(found):8.1f} ms"
    print(f"{when:14} {times}  {resident:5.0f} MB resident", flush=True)
    return max(found)


def main() -> int:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=20.0, help="of the attack")
    parser.add_argument("--memory", default="200000000", help="memory_bytes_max of the broker")
    parser.add_argument("--most", type=float, default=2000.0, help="ms that a confirm may take")
    parser.add_argument("--python", default=sys.executable, help="an interpreter with the broker")
    options = parser.parse_args()
    settings = {"memory_bytes_max": options.memory}
    print(sides.version(options.python))
    with tempfile.TemporaryDirectory(prefix="bench-alarm-") as directory:
        broker = BrokerProcess(Path(directory), settings=settings, python=options.python)
        with broker:
            most = show("before", broker, confirms(broker, 5.0))
            until = time.monotonic() + options.seconds
            target = Target(broker.port, 0, broker.pid, broker.data_dir, until)
            attack = multiprocessing.get_context("fork").Process(
                target=attack_delayed_for_years, args=(target, _GUEST)
            )
            attack.start()
            most = max(most, show("attacked", broker, confirms(broker, options.seconds)))
            attack.join(2.0)
            attack.kill()
            attack.join()
            print(f"{_published.value} messages wait for ten years", flush=True)
            most = max(most, show("after", broker, confirms(broker, 5.0)))
            begun = time.monotonic()
            broker.crash()
            print(f"started in {time.monotonic() - begun:.1f} s", flush=True)
            most = max(most, show("after a kill", broker, confirms(broker, 5.0)))
    return 1 if most > options.most else 0


if __name__ == "__main__":
    raise SystemExit(main())
