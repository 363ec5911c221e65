"""Wrong command lines end with 64 and a line that says what is wrong, without asking any broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.testing import CliRunner

from leveret.cli import app, exits

DOCS = Path(__file__).parents[2] / "docs"
HEAVY = ("aiohttp", "rich", "pydantic", "structlog", "uvloop", "pyspark", "leveret.client")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("sevre", "leveret: no such command 'sevre'; did you mean 'serve', 'store'?\n"),
        ("serve --prot 1", "no such option: --prot"),
        ("publish", "leveret: missing argument 'ROUTING_KEY'\n"),
        ("publish q x --lines", "--lines"),
        ("publish q x --property foo=1", "'foo' is none of"),
        ("publish q x --property headers=1", "'headers' is none of"),
        ("publish q x --property priority=high", "priority must be a number"),
        ("publish q x --header novalue", "KEY=VALUE"),
        ("declare queue q -a x=1 -a x=2", "given twice"),
        ("get q --uri http://localhost", "amqp://"),
        ("get q --uri amqp://u:secret@h:p", "port"),
        ("get q --count 0", "--count"),
        ("consume q --prefetch 65536", "--prefetch"),
        ("perf -f durable", "durable"),
        ("perf -q 10 -A 100", "-q is less than -A"),
        ("perf -x 0 -y 0", "nothing to do"),
    ],
)
def test_a_wrong_command_line_is_explained(line: str, said: str) -> None:
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == exits.USAGE
    assert said in result.stderr
    assert "secret" not in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize("line", ["get q", "consume q", "publish q x", "declare queue q", "perf"])
def test_no_broker_is_unavailable(line: str) -> None:
    # PerfTest has `-h` for the URI.
    for option in ("--uri", "-h"):
        result = CliRunner().invoke(app, [*line.split(), option, "amqp://127.0.0.1:1"])
        assert result.exit_code == exits.UNAVAILABLE
        assert "cannot connect to 127.0.0.1:1: Connection refused\n" in result.stderr


def test_a_setting_that_does_not_fit_is_a_fault_of_configuration() -> None:
    result = CliRunner().invoke(app, ["serve", "--port", "70000", "--sync", "maybe"])
    assert result.exit_code == exits.CONFIG
    assert "leveret: port: " in result.stderr
    assert "leveret: sync: " in result.stderr


@pytest.mark.both_builds
def test_version_names_the_build() -> None:
    from leveret import __version__
    from leveret.wire.buffer import COMPILED

    result = CliRunner().invoke(app, ["--version"])
    build = "compiled" if COMPILED else "pure"
    assert result.output.startswith(f"leveret {__version__} ({build}, Python 3.")
    assert result.exit_code == 0


def test_the_command_imports_nothing_heavy_before_it_is_used() -> None:
    code = f"import sys, leveret.cli; print([m for m in {HEAVY} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def options_of(command: Any) -> Iterator[str]:
    """Yield the long options of a command, without those that all have."""
    for parameter in command.params:
        long = [option for option in parameter.opts if option.startswith("--")]
        yield from (option for option in long if option not in {"--help", "--uri"})


@pytest.mark.parametrize(
    "path",
    [
        "declare queue",
        "declare exchange",
        "declare stream",
        "declare super-stream",
        "declare binding",
        "publish",
        "get",
        "consume",
        "list queues",
        "list exchanges",
        "list bindings",
        "list connections",
        "status",
        "top",
        "perf",
        "demo",
    ],
)
def test_every_option_is_documented(path: str) -> None:
    command: Any = typer.main.get_command(app)
    for name in path.split():
        command = command.commands[name]
    page = (DOCS / "reference/operation/cli.md").read_text()
    assert [option for option in options_of(command) if f"`{option}" not in page] == []


def test_every_exit_code_is_documented() -> None:
    page = (DOCS / "reference/operation/cli.md").read_text()
    codes = [code for name, code in vars(exits).items() if name.isupper()]
    assert len(codes) > 8
    assert [code for code in codes if f"| {code} |" not in page] == []


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("list_queue", "list_queues"), ("list_exchange", "list_exchanges"), ("delete_queu", "")],
)
def test_what_destroys_is_never_suggested(typed: str, meant: str) -> None:
    result = CliRunner().invoke(app, ["ctl", typed])
    assert result.exit_code == exits.USAGE
    assert f"no such command '{typed}'" in result.stderr
    assert meant in result.stderr
    for verb in ("delete_", "purge_", "clear_"):
        assert verb not in result.stderr.replace(typed, "")
