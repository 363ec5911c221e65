"""What hostile users and strangers cost a well-behaved neighbour.

    .venv/bin/python bench/hostile.py [--only NAME,...] [--seconds 10] [--rate 200] [--list]

For each scenario (`bench/hostile_*.py`, see `target.py`) a broker process starts on an empty data
directory, with ten neighbours beside it (`neighbour.py`).  After `--seconds` of peace the scenario
attacks for as long.  Printed are the neighbour's latencies alone and under attack, what the broker
took of a processor, its greatest resident set, how much larger it is some seconds afterwards than
before, its greatest number of descriptors, the neighbour's new logins, how often it was cut off,
and whether the broker lives afterwards and lets somebody in anew.

The exit code is 1 where it does not.  Attackers take processor time too: on two cores a neighbour's
p99 under attack is partly theirs.
"""

from __future__ import annotations

import argparse
import base64
import importlib
import json
import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil
import sides
from target import COLD_PASSWORD, COLD_USERS, STRANGER, TENANT, Target

from leveret.broker.users.users import ARGON2
from leveret.server.authentication import hash_argon2
from support.brokers.broker_process import BrokerProcess, BrokerProcessError
from support.brokers.secure import Pki, port_of
from support.http.http_api import Api
from support.wire import raw

#: How often the broker's process is looked at.
LOOK_SECONDS: Final = 0.05

#: How long after an attack it is seen how much memory it has left: what is free is given back then.
LEFT_SECONDS: Final = 5.0

#: How long the broker may take to let somebody in once an attack is over.
AFTERWARDS_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Scenario:
    """An attack with the broker that it is tried on."""

    name: str
    what: str
    attack: Callable[[Target], None]
    settings: dict[str, str]
    #: The broker's limit of descriptors; 0 leaves it.
    descriptors: int
    #: How long it takes at least.
    seconds: float
    #: Whether the broker has certificates.
    tls: bool


@dataclass
class Looks:
    """What the broker's process took over some seconds."""

    processor_percent: float = 0.0
    resident_mb: float = 0.0
    #: How much more memory it has some seconds later than before.
    left_mb: float = 0.0
    descriptors: int = 0


@dataclass
class Found:
    """The figures of one scenario; latencies in ms, -1 where nothing was measured."""

    p50_alone: float = -1.0
    p99_alone: float = -1.0
    p50: float = -1.0
    p99: float = -1.0
    drops: int = 0
    logins: int = 0
    logins_failed: int = 0
    login_p50: float = -1.0
    login_max: float = -1.0
    looks: Looks = field(default_factory=Looks)
    lives: bool = False
    lets_in_seconds: float = -1.0


def scenarios() -> list[Scenario]:
    """Return all scenarios, by file and place in it."""
    found = []
    for path in sorted(sides.BENCH.glob("hostile_*.py")):
        module = importlib.import_module(path.stem)
        settings: dict[str, dict[str, str]] = getattr(module, "SETTINGS", {})
        descriptors: dict[str, int] = getattr(module, "DESCRIPTORS", {})
        seconds: dict[str, float] = getattr(module, "SECONDS", {})
        tls: frozenset[str] = getattr(module, "TLS", frozenset())
        for key, attack in vars(module).items():
            if key.startswith("attack_"):
                name = key.removeprefix("attack_").replace("_", "-")
                what = (attack.__doc__ or name).splitlines()[0].rstrip(".")
                found.append(
                    Scenario(
                        name,
                        what,
                        attack,
                        settings.get(name, {}),
                        descriptors.get(name, 0),
                        seconds.get(name, 0.0),
                        name in tls,
                    )
                )
    return found


def definitions() -> dict[str, Any]:
    """Return the users of all scenarios: a stranger, a tenant with a vhost, and the neighbour's."""
    password_hash = base64.b64encode(hash_argon2(COLD_PASSWORD.encode())).decode()
    cold = [f"cold-{number}" for number in range(COLD_USERS)]
    tag: list[str] = []
    users: list[dict[str, Any]] = [
        {"name": name, "hashing_algorithm": ARGON2, "password_hash": password_hash, "tags": tag}
        for name in cold
    ]
    users += [
        {"name": one.user, "password": one.password, "tags": tag} for one in (STRANGER, TENANT)
    ]
    users.append({"name": "guest", "password": "guest", "tags": ["administrator"]})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    ways = [(name, "/") for name in ("guest", *cold)]
    ways += [("guest", TENANT.vhost), (TENANT.user, TENANT.vhost)]
    return {
        "vhosts": [{"name": "/"}, {"name": TENANT.vhost}],
        "users": users,
        "permissions": [{"user": user, "vhost": vhost, **everything} for user, vhost in ways]
        + [
            {"user": STRANGER.user, "vhost": "/", "configure": "", "write": "", "read": ""},
        ],
    }


def started(scenario: Scenario, directory: Path) -> BrokerProcess:
    """Return a broker that is not started yet."""
    wrapper = []
    if scenario.descriptors:
        limit = f'ulimit -n {scenario.descriptors}; exec "$@"'
        wrapper = ["sh", "-c", limit, "sh"]
    settings = dict(scenario.settings)
    if scenario.tls:
        pki = {name: str(path) for name, path in Pki(directory).settings.items()}
        settings |= pki | {"tls_port": "0", "https_port": "0"}
    return BrokerProcess(directory / "data", settings=settings, wrapper=wrapper)


@contextmanager
def beside(port: int, rate: float) -> Iterator[subprocess.Popen[str]]:
    """Run a neighbour."""
    command = [sys.executable, str(sides.BENCH / "neighbour.py"), str(port), str(rate)]
    path = {"PYTHONPATH": str(sides.BENCH.parent / "tests")}
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=path)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise BrokerProcessError("the neighbour did not start")
        yield process
    finally:
        process.kill()
        process.communicate()


def look(broker: BrokerProcess, until: float) -> Looks:
    """Look at a broker's process until a time."""
    found = Looks()
    try:
        process = psutil.Process(broker.pid)
        begun, before = time.monotonic(), broker.processor_seconds
        while time.monotonic() < until:
            found.resident_mb = max(found.resident_mb, process.memory_info().rss / 1e6)
            found.descriptors = max(found.descriptors, process.num_fds())
            took, passed = broker.processor_seconds - before, time.monotonic() - begun
            found.processor_percent = 100 * took / passed
            time.sleep(LOOK_SECONDS)
    except psutil.NoSuchProcess:
        # It died, which the end of the scenario tells.
        time.sleep(max(0.0, until - time.monotonic()))
    return found


def resident_mb(broker: BrokerProcess) -> float:
    """Return the resident set of a broker's process, 0 where it is gone."""
    try:
        return float(psutil.Process(broker.pid).memory_info().rss / 1e6)
    except psutil.NoSuchProcess:
        return 0.0


def attacked(scenario: Scenario, target: Target, broker: BrokerProcess) -> Looks:
    """Run an attack in a process of its own and look at the broker meanwhile."""
    attacker = multiprocessing.get_context("fork").Process(target=scenario.attack, args=(target,))
    attacker.start()
    try:
        return look(broker, target.until)
    finally:
        attacker.join(2.0)
        attacker.kill()
        attacker.join()


def lets_in(broker: BrokerProcess) -> float:
    """Return after how many seconds somebody is let in anew, -1 for never."""
    begun = time.monotonic()
    while time.monotonic() - begun < AFTERWARDS_SECONDS:
        try:
            raw.connect(broker.uri).close()
            return time.monotonic() - begun
        except (OSError, raw.Closed, AssertionError):
            time.sleep(0.1)
    return -1.0


def percentile(values: list[float], percent: int) -> float:
    """Return a percentile, -1 of nothing."""
    if len(values) < 2:
        return values[0] if values else -1.0
    return statistics.quantiles(values, n=100)[percent - 1]


def judged(told: dict[str, Any], begun: float, until: float) -> Found:
    """Return the figures of what a neighbour told, with an attack from `begun` to `until`."""
    alone = [took for due, took in told["latencies"] if due < begun]
    under = [took for due, took in told["latencies"] if begun <= due < until]
    logins = [took for due, took in told["logins"] if begun <= due < until]
    right = [took for took in logins if took >= 0]
    return Found(
        percentile(alone, 50),
        percentile(alone, 99),
        percentile(under, 50),
        percentile(under, 99),
        len([when for when in told["drops"] if when >= begun]),
        len(logins),
        len(logins) - len(right),
        percentile(right, 50),
        max(right, default=-1.0),
    )


def tried(scenario: Scenario, seconds: float, rate: float) -> Found:
    """Try one scenario on a new broker."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-hostile-") as directory,
        started(scenario, Path(directory)) as broker,
    ):
        api = Api(broker.data_dir / "management.sock")
        status, answer = api.ask("POST", "/api/definitions", definitions())
        api.close()
        if status != 200:
            raise BrokerProcessError(f"the users are refused: {status} {answer}")
        secure = [port_of(broker, name) if scenario.tls else 0 for name in ("amqps", "https")]
        http_port = int(broker.expect_line("listening on http://").rsplit(":", 1)[1])
        with beside(broker.port, rate) as beside_it:
            time.sleep(seconds)
            begun = time.monotonic()
            until = begun + max(seconds, scenario.seconds)
            target = Target(broker.port, http_port, broker.pid, broker.data_dir, until, *secure)
            before = resident_mb(broker)
            looks = attacked(scenario, target, broker)
            seconds_to_enter = lets_in(broker)
            time.sleep(LEFT_SECONDS)
            looks.left_mb = resident_mb(broker) - before
            told, _ = beside_it.communicate("end\n")
        found = judged(json.loads(told), begun, until)
        found.looks = looks
        found.lives = broker.is_running()
        found.lets_in_seconds = seconds_to_enter
        if not found.lives:
            print("".join(broker.output.splitlines(keepends=True)[-5:]), file=sys.stderr)
        return found


def shown(found: Found) -> str:
    """Return a row of the table."""
    alone = f"{found.p50_alone:.1f} / {found.p99_alone:.1f}"
    under = f"{found.p50:.1f} / {found.p99:.1f}"
    took = found.looks
    logins = f"{found.logins - found.logins_failed} of {found.logins}"
    slowest = f"{found.login_p50:.0f} / {found.login_max:.0f}"
    after = f"in {found.lets_in_seconds:.2f} s" if found.lets_in_seconds >= 0 else "never"
    return (
        f"{alone:>15} {under:>17} {took.processor_percent:6.0f} {took.resident_mb:7.0f}"
        f" {took.left_mb:5.0f} {took.descriptors:6} {logins:>9} {slowest:>13} {found.drops:5}"
        f"  {'lives' if found.lives else 'DIED'}, lets in {after}"
    )


HEAD: Final = (
    f"{'alone p50 / p99':>15} {'attacked p50/p99':>17} {'CPU %':>6} {'RSS MB':>7} {'left':>5}"
    f" {'fds':>6} {'logins':>9} {'ms p50 / max':>13} {'drops':>5}  afterwards"
)


def main() -> int:
    """Try the scenarios and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="names of scenarios, with commas between")
    parser.add_argument("--seconds", type=float, default=10.0, help="of peace, and of attack")
    parser.add_argument("--rate", type=float, default=200.0, help="the neighbours' messages/s")
    parser.add_argument("--list", action="store_true", help="name the scenarios and end")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    known = scenarios()
    wanted = set(options.only.split(",")) - {""}
    if unknown := wanted - {one.name for one in known}:
        parser.error(f"no scenario {', '.join(sorted(unknown))}; see --list")
    chosen = [one for one in known if not wanted or one.name in wanted]
    width = max(len(one.name) for one in chosen)
    if options.list:
        print("\n".join(f"{one.name:{width}}  {one.what}" for one in chosen))
        return 0
    if not options.json:
        print(sides.version(sys.executable))
        print(f"{'':{width}} {HEAD}")
    results = {}
    for one in chosen:
        results[one.name] = found = tried(one, options.seconds, options.rate)
        if not options.json:
            print(f"{one.name:{width}} {shown(found)}", flush=True)
    if options.json:
        print(json.dumps({name: asdict(found) for name, found in results.items()}, indent=2))
    good = all(found.lives and found.lets_in_seconds >= 0 for found in results.values())
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main())
