"""The pages list all limits that users meet, all reply codes and all queue arguments."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import weight
from leveret import errors, limits

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


def rows(page: Path) -> dict[str, list[str]]:
    """Return the rows of a page's tables by their first cell, without its backquotes."""
    found: dict[str, list[str]] = {}
    for line in page.read_text().splitlines():
        if line.startswith("| "):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            found.setdefault(cells[0].strip("`"), cells[1:])
    return found


#: Limits that users meet although no error text and no setting names them: the connection ends, an
#: answer is truncated, or all limits of the kind are checked by one shared function.
MET = """
OUTPUT_BYTES_HIGH OUTPUT_BYTES_MAX HAREMQ_UNACKED_MAX HAREMQ_LISTED_MAX
ASSEMBLING_BYTES_MAX OVERFULL_BYTES_MAX CONNECTIONS_MAX LOGINS_WAITING_PER_USER_MAX
LOGINS_WAITING_PER_NETWORK_MAX LOGINS_WAITING_MAX QUEUES_PER_VHOST_MAX
EXCHANGES_PER_VHOST_MAX BINDINGS_PER_EXCHANGE_MAX QUEUES_PER_USER BINDINGS_PER_USER
CONNECTIONS_PER_USER MESSAGES_PER_USER MESSAGE_BYTES_PER_USER_PERCENT ARGON2_KIB_MAX
ARGON2_ROUNDS_MAX POLICIES_PER_VHOST_MAX HISTORY_MESSAGES STREAM_OFFSET_NAMES_PER_USER_MAX
STREAM_QUERIES_MAX STREAM_QUERIES_PER_USER_MAX STREAM_QUERY_SILENCE_MS
PATTERN_LOOKS_MAX DEAD_LETTER_COPIES_MAX DEATHS_LISTED_MAX DEATHS_BYTES_MAX
DELIVERY_LIMIT_QUORUM EXPIRATION_MS_MAX DEDUPLICATION_KEYS DEDUPLICATION_KEYS_MAX
PUBLISHERS_PER_QUEUE_MAX PUBLISHERS_PER_USER_MAX PUBLISH_SESSION_EXPIRY_MS
SINKS_PER_USER_MAX RETAINED_BYTES_MAX CLIENT_INPUT_BYTES_MAX CLIENT_OUTPUT_BYTES_MAX
CLUSTER_DELIVERIES_MAX HTTP_CONNECTIONS_MAX HTTP_REQUESTS_PER_USER_MAX
HTTP_API_REQUESTS_PER_USER_MAX HTTP_HEAVY_REQUESTS_PER_USER_MAX HTTP_IDLE_SECONDS_MAX
HTTP_HEAD_SECONDS_MAX HTTP_STALL_SECONDS_MAX HTTP_BODY_BYTES_MAX HTTP_BODY_SECONDS_MAX
REQUEST_SHARE HTTP_SESSIONS_PER_USER_MAX HTTP_SESSIONS_MAX HTTP_SESSION_SECONDS_MAX
HTTP_SESSION_IDLE_SECONDS_MAX LOG_TAIL_READERS_PER_USER_MAX LOG_TAIL_SECONDS_MAX
HTTP_MESSAGES_BYTES_MAX DRY_RUN_STEPS_MAX HTTP_WAIT_MS_MAX HTTP_CHUNKS_BYTES_MAX
HTTP_CHUNKS_BYTES SCRAPES_PER_OBJECT_MAX SCRAPE_OBJECTS_MAX CONSUMERS_SHOWN_MAX RATES_MAX
BACKUPS_MAX EVENT_STREAM_BYTES SPARK_PARTITION_RECORDS SPARK_WRITE_WINDOW SPARK_RETRY_MS
SPARK_WRITE_TIMEOUT_MS SPARK_WRITE_STAGING_MS CLIENT_POOL_CONNECTIONS
CLIENT_POOL_WAIT_SECONDS CLIENT_POOL_IDLE_SECONDS
"""


def constants_in(tree: ast.AST) -> Iterator[str]:
    """Yield the names in `tree` that are written as constants."""
    for node in ast.walk(tree):
        name = getattr(node, "attr", getattr(node, "id", ""))
        if name.isupper():
            yield name


def told(source: str) -> set[str]:
    """Return the constants in the texts of errors, or in the conditions for raising them."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Raise | ast.JoinedStr):
            found.update(constants_in(node))
        elif isinstance(node, ast.If) and any(isinstance(step, ast.Raise) for step in node.body):
            found.update(constants_in(node.test))
    return found


def limits_that_users_meet() -> set[str]:
    """Return the limits in errors and settings, and those of `MET`."""
    source = ROOT / "src" / "leveret"
    settings = set(constants_in(ast.parse((source / "config.py").read_text())))
    errors_of = set().union(*(told(path.read_text()) for path in source.rglob("*.py")))
    return (settings | errors_of) & set(vars(limits)) | set(MET.split())


def test_every_limit_that_a_user_meets_is_listed_with_its_value() -> None:
    listed = {
        name: cells[0]
        for name, cells in rows(DOCS / "reference/operation/limits.md").items()
        if name.isupper()
    }
    assert listed == {name: f"{vars(limits)[name]:,}" for name in limits_that_users_meet()}


def test_a_limit_that_only_one_module_needs_is_in_that_module(sources: weight.Sources) -> None:
    needed = Counter(
        alias.name
        for tree in sources.trees.values()
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "leveret.limits"
        for alias in node.names
    )
    known = {name for name in vars(limits) if name.isupper()}
    assert {name for name in known - limits_that_users_meet() if needed[name] < 2} == set()


def test_a_limit_of_an_error_would_be_found() -> None:
    assert told("if size > limits.A_MAX:\n    raise ValueError") == {"A_MAX"}
    assert told("raise ValueError(f'more than {B_MAX} bytes')") == {"B_MAX"}
    assert told("if size > C_MAX:\n    pause()") == set()


@pytest.mark.parametrize("table", [errors.SOFT_ERRORS, errors.HARD_ERRORS], ids=["soft", "hard"])
def test_every_reply_code_is_listed_with_its_name_and_class(
    table: dict[int, type[errors.AmqpError]],
) -> None:
    lines = (DOCS / "reference/broker/errors.md").read_text().splitlines()
    starts = [f"| {code} | {kind.name} | `{kind.__name__}` | " for code, kind in table.items()]
    assert [s for s in starts if sum(line.startswith(s) for line in lines) != 1] == []


def test_every_queue_argument_is_listed() -> None:
    source = (ROOT / "src/leveret/broker/attributes/arguments.py").read_text()
    known = set(re.findall(r'"(x-[a-z-]+)"', source))
    compared = set(re.findall(r'"(x-[a-z-]+)"', source.split("_COMPARED")[1].split(")")[0]))
    table = rows(DOCS / "reference/broker/queues.md")
    listed = {name for name in table if name.startswith("x-")}
    assert known
    assert listed == known
    assert {name for name in listed if table[name][1] == "yes"} == compared


def test_every_behaviour_that_has_a_test_is_said_to_be_met() -> None:
    names = "\n".join(p.read_text() for p in sorted((ROOT / "tests" / "protocol").glob("*.py")))
    tested = {int(number) for number in re.findall(r"def test_b(\d+)_", names)}
    table = rows(DOCS / "reference/clients/compatibility.md")
    said = {int(number): cells[1] for number, cells in table.items() if number.isdigit()}
    assert sorted(said) == list(range(1, 76))
    assert {number for number, state in said.items() if not state.startswith("not yet")} == tested
