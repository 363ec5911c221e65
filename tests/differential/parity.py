"""What RabbitMQ's HTTP API and metrics have, and whether Leveret has it: the page for users.

    PYTHONPATH=src:tests:bench .venv/bin/python tests/differential/parity.py [--write]

starts the RabbitMQ of Debian's next release and Leveret, makes the same topology on both, and asks
both for every route, field, key of definitions and family of metrics that this RabbitMQ has.  What
differs or is missing has its reason in `parity.toml`, or in `answers.toml` for fields that 3.10.8
has too.  `--write` writes the page.

The lists come from RabbitMQ itself: routes from its dispatcher, methods from its answers to
OPTIONS, fields and families from its answers.  What only Leveret has is not compared.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import json
import re
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from rabbitmq import RabbitMQError, free_ports
from rabbitmq_next import NextRabbitMQ

from differential import answers, pair
from differential.stage import Host
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import ANSWER_SECONDS_MAX
from support.http.http_streams import http_port
from support.http.metrics_text import metrics_port

REASONS: Final = Path(__file__).parent / "parity.toml"
PAGE: Final = Path(__file__).parents[2] / "docs/reference/clients/rabbitmq-http.md"

#: The families of `/metrics/detailed`; RabbitMQ has no list of them that can be asked for.
FAMILIES: Final = (
    "auth_attempt_metrics", "auth_attempt_detailed_metrics", "channel_exchange_metrics",
    "channel_metrics", "channel_process_metrics", "channel_queue_exchange_metrics",
    "channel_queue_metrics", "connection_churn_metrics", "connection_coarse_metrics",
    "connection_metrics", "exchange_bindings", "exchange_metrics", "exchange_names",
    "node_coarse_metrics", "node_metrics", "node_persister_metrics", "queue_coarse_metrics",
    "queue_consumer_count", "queue_delivery_metrics", "queue_exchange_metrics", "queue_metrics",
    "ra_metrics", "stream_consumer_metrics", "vhost_status",
)  # fmt: skip

SCRAPED: Final = (
    "/metrics",
    "/metrics/per-object",
    *(f"/metrics/detailed?family={family}" for family in FAMILIES),
    "/metrics/memory-breakdown",
)

#: Objects that exist, for the names in the paths of routes; all other names are `none`.
THERE: Final = {
    "vhost": "v", "user": "u", "username": "guest", "exchange": "x", "queue": "q", "source": "x",
    "destination": "q", "dtype": "q", "props": "key", "component": "vhost-limits",
    "name": "limits", "within": "1", "unit": "days", "protocols": "amqp", "pattern": "x",
    "filter": "x", "password": "secret",
}  # fmt: skip

#: What `name` is in the routes below these paths.
NAMED: Final = {
    "/policies": "p", "/operator-policies": "o", "/vhost-limits": "max-queues",
    "/user-limits": "max-channels", "/feature-flags": "quorum_queue",
    "/global-parameters": "cluster_name",
}  # fmt: skip

#: Never requested: it would delete what other requests are about.
NEVER: Final = {("DELETE", "/reset"), ("DELETE", "/reset/:node")}

#: The kind of object that a field belongs to, by the longest beginning of the question that fits.
KINDS: Final = {
    "overview": "overview", "node": "node", "memory": "memory of a node",
    "cluster-name": "cluster name", "whoami": "whoami", "auth": "auth", "extensions": "extension",
    "vhost": "vhost", "vhost-limits": "limits", "user-limits": "limits", "user": "user",
    "permission": "permission", "topic-permission": "topic permission", "polic": "policy",
    "operator-polic": "operator policy", "parameters": "parameter",
    "global-parameters": "global parameter", "exchange": "exchange",
    "exchange-sources": "binding", "queue": "queue or stream", "queue-bindings": "binding",
    "queue-page": "page of a list", "binding": "binding", "connection": "connection",
    "vhost-connections": "connection", "connection-channels": "channel", "channel": "channel",
    "consumers": "consumer", "definitions": "definitions", "feature-flags": "feature flag",
    "alarms": "health check", "local-alarms": "health check", "virtual-hosts": "health check",
    "quorum-critical": "health check", "mirror-critical": "health check",
    "protocol-listener": "health check", "no-": "error", "bad-page": "error",
    "aliveness": "health check", "get": "message of a queue", "publish": "answer to a publish",
    "permissions-of": "permission", "permissions-in": "permission", "users-without": "user",
}  # fmt: skip


@dataclass(frozen=True)
class Answer:
    """What a broker answered."""

    status: int
    allow: str
    text: str


@dataclass(frozen=True)
class Side:
    """One of the two brokers: as a host of the differential test, by HTTP, and its metrics."""

    host: Host
    ask: Callable[[str, str, object], Answer]
    metrics: Callable[[str], str]


@dataclass(frozen=True)
class Finding:
    """One thing that RabbitMQ has: `state` is equal, other or missing."""

    section: str
    name: str
    state: str
    detail: str = ""


def asker(port: int) -> Callable[[str, str, object], Answer]:
    """Return what asks a port as guest."""
    login = "Basic " + base64.b64encode(b"guest:guest").decode()

    def ask(verb: str, path: str, body: object = None) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=ANSWER_SECONDS_MAX)
        with contextlib.closing(connection):
            data = None if body is None else json.dumps(body)
            headers = {"Authorization": login, "Content-Type": "application/json"}
            connection.request(verb, path, data, headers)
            response = connection.getresponse()
            return Answer(
                response.status, response.headers.get("allow", ""), response.read().decode()
            )

    return ask


@contextlib.contextmanager
def theirs(directory: Path) -> Iterator[tuple[Side, list[str]]]:
    """Run RabbitMQ; yield it with the paths of its routes.  Raises: RabbitMQError."""
    port, scraped = free_ports(2)
    configuration = (
        f"management.tcp.ip = 127.0.0.1\nmanagement.tcp.port = {port}\n"
        f"prometheus.tcp.ip = 127.0.0.1\nprometheus.tcp.port = {scraped}\n"
    )
    plugins = (*pair.PLUGINS, "rabbitmq_prometheus")
    with NextRabbitMQ(directory, plugins, configuration) as broker:
        paths = broker.evaluate(
            '[io:format("~s~n", [P]) || {P, _, _} <- rabbit_mgmt_dispatcher:dispatcher()], ok.'
        ).split()
        ask, scrape = asker(port), asker(scraped)
        host = Host("rabbitmq", broker.uri, _parsed(ask), broker.version)
        side = Side(host, ask, lambda path: scrape("GET", path, None).text)
        yield side, [path for path in paths if path.startswith("/")]


@contextlib.contextmanager
def ours(directory: Path) -> Iterator[Side]:
    """Run Leveret."""
    with BrokerProcess(directory / "leveret") as process:
        ask, scrape = asker(http_port(process)), asker(metrics_port(process))
        host = Host("leveret", process.uri, _parsed(ask))
        yield Side(host, ask, lambda path: scrape("GET", path, None).text)


def _parsed(ask: Callable[[str, str, object], Answer]) -> Callable[..., tuple[int, object]]:
    def parsed(verb: str, path: str, body: object = None) -> tuple[int, object]:
        answer = ask(verb, path, body)
        try:
            return answer.status, json.loads(answer.text)
        except ValueError:
            return answer.status, None

    return parsed


# -- routes ----------------------------------------------------------------------------------------


def shown(path: str) -> str:
    """Return a path of RabbitMQ's dispatcher as the documentation writes it."""
    return "/api" + re.sub(r":(\w+)", r"{\1}", path).rstrip("/")


def filled(path: str, names: Mapping[str, str]) -> str:
    """Return a path with the names of things that are there."""
    first = "/" + path.split("/")[1]
    known = {**THERE, **names}
    if first in NAMED:
        known["name"] = NAMED[first]

    def name(part: re.Match[str]) -> str:
        return quote(known.get(part[1], "none"), safe="%")

    return "/api" + re.sub(r":(\w+)", name, path)


def served(side: Side) -> list[tuple[re.Pattern[str], set[str]]]:
    """Return the paths that Leveret says it serves, as patterns, with their methods."""
    paths = json.loads(side.ask("GET", "/api/openapi.json", None).text)["paths"]
    return [
        (re.compile(re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(path))), {m.upper() for m in methods})
        for path, methods in paths.items()
    ]


def routes(
    rabbitmq: Side, leveret: Side, paths: Iterable[str], names: tuple[Mapping[str, str], ...]
) -> Iterator[Finding]:
    """Compare the routes: their methods, and the statuses for objects that exist and do not."""
    known = served(leveret)
    for path in dict.fromkeys(one.rstrip("/") for one in paths):
        allow = rabbitmq.ask("OPTIONS", filled(path, names[0]), None).allow
        wanted = {one.strip() for one in allow.split(",")} - {"HEAD", "OPTIONS", ""}
        concrete = filled(path, {})
        has = set[str]().union(*(methods for one, methods in known if one.fullmatch(concrete)))
        for method in sorted(wanted):
            name = f"{method} {shown(path)}"
            if method not in has:
                yield Finding("routes", name, "missing")
                continue
            statuses = (
                []
                if (method, path) in NEVER
                else list(_statuses((rabbitmq, leveret), method, path, names))
            )
            differ = [f"{case}: {a} and {b}" for case, a, b in statuses if a != b]
            yield Finding("routes", name, "other" if differ else "equal", "; ".join(differ))


def _statuses(
    sides: tuple[Side, Side], method: str, path: str, names: tuple[Mapping[str, str], ...]
) -> Iterator[tuple[str, int, int]]:
    """Give both statuses for an object that exists, if the method is GET, and one that does not."""
    first, second = sides
    if method == "GET":
        one, other = (filled(path, own) for own in names)
        yield (
            "what is there",
            first.ask(method, one, None).status,
            second.ask(method, other, None).status,
        )
    if ":" not in path or (method == "PUT" and path.count(":") == 1 and "node" not in path):
        return
    nothing = dict.fromkeys(re.findall(r":(\w+)", path), "none")
    where = filled(path, {**nothing, "dtype": "q", "within": "1", "unit": "days"})
    where = where.replace("quorum_queue", "none")
    body: object = {} if method in ("PUT", "POST") else None
    yield (
        "what is not",
        first.ask(method, where, body).status,
        second.ask(method, where, body).status,
    )


# -- metrics ---------------------------------------------------------------------------------------


def families(text: str) -> dict[str, set[str] | None]:
    """Return the names of samples with their labels; None for a family that has no sample now."""
    found: dict[str, set[str] | None] = {}
    for line in text.splitlines():
        if part := re.match(r"(\w+)(?:\{(.*)\})? ", line):
            labels = set(re.findall(r'(\w+)="', part[2] or ""))
            found[part[1]] = labels | (found.get(part[1]) or set())
    for name in re.findall(r"^# TYPE (\w+) (?:counter|gauge|untyped)", text, re.MULTILINE):
        found.setdefault(name, None)
    return found


def metrics(rabbitmq: Side, leveret: Side) -> Iterator[Finding]:
    """Compare the families of each path."""
    for path in SCRAPED:
        wanted, has = families(rabbitmq.metrics(path)), families(leveret.metrics(path))
        section = re.sub(r"\?.*", "", path)
        for name in sorted(wanted):
            if name not in has:
                yield Finding(section, name, "missing")
            elif lacking := _lacking(wanted[name], has[name]):
                detail = f"without {', '.join(sorted(lacking))}"
                yield Finding(section, name, "other", detail)
            else:
                yield Finding(section, name, "equal")


def _lacking(wanted: set[str] | None, has: set[str] | None) -> set[str]:
    return set() if wanted is None or has is None else wanted - has


# -- fields ----------------------------------------------------------------------------------------


def kind_of(field: str) -> str:
    """Return what kind of object a field is of."""
    fitting = [start for start in KINDS if field.startswith(start)]
    return KINDS[max(fitting, key=len)] if fitting else field.partition(".")[0]


def plain(field: str) -> str:
    """Return a field without its question and the names of elements."""
    rest = re.sub(r"^[\w-]+(\[[^\]]*\])?\.?", "", field)
    return re.sub(r"\[[^\]]*\]", "[]", rest)


def fields(rabbitmq: Mapping[str, object], leveret: Mapping[str, object]) -> Iterator[Finding]:
    """Compare the fields of all answers; below one that is missing nothing is compared."""
    found = {one.field: one for one in answers.differences(rabbitmq, leveret)}
    for field in sorted(rabbitmq.keys() & (leveret.keys() | found.keys())):
        one = found.get(field)
        if one is None:
            yield Finding("fields", field, "equal")
        else:
            detail = "" if one.kind == "missing" else f"{one.theirs!r} and {one.ours!r}"
            yield Finding("fields", field, one.kind, detail)


# -- reasons ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Reason:
    """Why some findings are not equal; each pattern is `state section name`."""

    text: str
    patterns: tuple[str, ...]


def own_reasons() -> list[Reason]:
    """Return the reasons of `parity.toml`."""
    rows = tomllib.loads(REASONS.read_text())["difference"]
    return [Reason(row["reason"], tuple(row["of"])) for row in rows]


def reasons() -> list[Reason]:
    """Return the reasons of both files."""
    found = own_reasons()
    for reason in answers.expected():
        patterns = (f"{kind} fields {one}" for kind, one in reason.patterns)
        found.append(Reason(reason.text, tuple(patterns)))
    return found


def unused(findings: Iterable[Finding]) -> list[str]:
    """Return the patterns of `parity.toml` that fit no finding any more."""
    said = {f"{one.state} {one.section} {one.name}" for one in findings}
    patterns = [pattern for reason in own_reasons() for pattern in reason.patterns]
    return [one for one in patterns if not any(answers.fits(one, text) for text in said)]


def explained(
    findings: Iterable[Finding], known: list[Reason]
) -> tuple[list[tuple[Finding, str]], list[str]]:
    """Return each finding with its reason, empty for an equal one, and what has no reason."""
    rows: list[tuple[Finding, str]] = []
    faults: list[str] = []
    for one in findings:
        reason = "" if one.state == "equal" else _reason(one, known)
        if one.state != "equal" and not reason:
            faults.append(f"{one.state} {one.section} {one.name}: {one.detail}")
        rows.append((one, reason))
    return rows, faults


def _reason(one: Finding, known: list[Reason]) -> str:
    said = f"{one.state} {one.section} {one.name}"
    for reason in known:
        if any(answers.fits(pattern, said) for pattern in reason.patterns):
            return reason.text
    return ""


def named(one: Finding) -> str:
    """Return the name that the page has a finding under; empty for an answer as a whole."""
    return plain(one.name) if one.section == "fields" else one.name


def compared(directory: Path) -> tuple[str, list[Finding]]:
    """Ask both brokers; return RabbitMQ's version and what was found.  Raises: RabbitMQError."""
    with theirs(directory) as (rabbitmq, paths), ours(directory) as leveret:
        hosts = (rabbitmq.host, leveret.host)
        with answers.used(hosts[0]) as one, answers.used(hosts[1]) as other:
            names = (one, other)
            with ThreadPoolExecutor(2) as pool:
                asked = list(pool.map(answers.asked, hosts, names))
            found = [
                *routes(rabbitmq, leveret, paths, names),
                *fields(*asked),
                *metrics(rabbitmq, leveret),
            ]
    return hosts[0].version, found


# -- the page --------------------------------------------------------------------------------------

HEAD: Final = """# RabbitMQ's HTTP API and metrics, one by one

Every route, field, key of definitions and family of metrics that RabbitMQ {version} has with its
plugins for management and Prometheus, and whether Leveret has it.
`tests/differential/parity.py` asks both brokers and writes this page, and `make differential` fails
when it finds something that is not here. What only Leveret has is in
[The HTTP API](../operation/management.md) and [Metrics](../operation/metrics.md).
"""


def page(version: str, rows: list[tuple[Finding, str]]) -> str:
    """Return the page."""
    parts = [HEAD.format(version=version)]
    parts.append("\n## Routes\n\n" + _table([row for row in rows if row[0].section == "routes"]))
    parts.append(
        "\n## Fields\n\nFields are paths through objects; `[]` stands for each element of a list. "
        "`(status)` is that of the HTTP answer. A field is different if its value or its type "
        "differs on the same topology; below a missing field nothing is compared.\n"
    )
    kinds: dict[str, dict[str, tuple[Finding, str]]] = defaultdict(dict)
    for one, reason in rows:
        if one.section != "fields" or not (name := named(one)):
            continue
        known = kinds[kind_of(one.name)].get(name)
        # One of several objects of a kind decides.
        if known is None or (known[0].state == "equal" and one.state != "equal"):
            made = Finding("fields", name, one.state)
            kinds[kind_of(one.name)][name] = (made, reason)
    parts += [
        f"\n### {kind[0].upper()}{kind[1:]}\n\n" + _table(list(kinds[kind].values()))
        for kind in sorted(kinds)
    ]
    parts.append(
        "\n## Metrics\n\nA family is different if it lacks a label, or is a sum where RabbitMQ has "
        "an entry for each object.\n"
    )
    for section in dict.fromkeys(re.sub(r"\?.*", "", path) for path in SCRAPED):
        found = [row for row in rows if row[0].section == section]
        parts.append(f"\n### `{section}`\n\n" + _table(found))
    return "".join(parts)


def _table(rows: list[tuple[Finding, str]]) -> str:
    """Return the equal ones as a list, and the others as a table by their reasons."""
    equal = sorted({one.name for one, _ in rows if one.state == "equal"})
    others: dict[tuple[str, str], set[str]] = defaultdict(set)
    for one, reason in rows:
        if one.state != "equal":
            others[("different" if one.state == "other" else "missing", reason)].add(one.name)
    text = f"Equal: {', '.join(f'`{name}`' for name in equal)}.\n" if equal else ""
    if not others:
        return text
    lines = ["| name | Leveret | reason |", "|---|---|---|"]
    for (state, reason), names in sorted(others.items(), key=lambda item: min(item[1])):
        listed = ", ".join(f"`{name}`" for name in sorted(names))
        lines.append(f"| {listed} | {state} | {reason} |")
    return text + ("\n" if text else "") + "\n".join(lines) + "\n"


def main() -> int:
    """Compare; say what has no reason, or write the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the page")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        try:
            version, found = compared(Path(directory))
        except RabbitMQError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    rows, faults = explained(found, reasons())
    counts = defaultdict[str, int](int)
    for one in found:
        counts[one.state] += 1
    lines = [f"RabbitMQ {version}: {dict(counts)}, {len(faults)} without a reason", *faults]
    lines += [f"nothing fits: {one}" for one in unused(found)]
    sys.stdout.write("\n".join(lines) + "\n")
    if options.write:
        PAGE.write_text(page(version, rows))
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
