"""Which broker a command is for, by options, variables and contexts: the whole table.

Nobody listens at these places, so a command ends by naming the one that it asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product
from pathlib import Path
from typing import Final

import pytest

from leveret.cli import exits
from leveret.cli.contexts.kept import Context, Contexts
from leveret.cli.place import LINE, BrokerOptions
from leveret.cli.root import COMMANDS, NAMED_BY, app
from support.brokers.broker_process import BrokerProcess
from support.commands.command_process import run_leveret
from support.http.http_streams import http_port

pytestmark = pytest.mark.one_build

#: A value of each option, and the place that it leads to.
OPTIONS: Final = {
    "--data-dir": ("by_option", "by_option/management.sock"),
    "--config": ("option.toml", "of_option_file/management.sock"),
    "--api": ("http://127.0.0.1:1", "http://127.0.0.1:1"),
    "--context": ("option", "http://127.0.0.1:2"),
}

#: Another value of each.
NEARER: Final = {
    "--data-dir": ("nearer", "nearer/management.sock"),
    "--config": ("nearer.toml", "nearer.sock"),
    "--api": ("http://127.0.0.1:3", "http://127.0.0.1:3"),
    "--context": ("nearer", "http://127.0.0.1:4"),
}

#: The variables, and where each one leads that is alone.
VARIABLES: Final = {
    "LEVERET_DATA_DIR": ("by_variable", "by_variable/management.sock"),
    "LEVERET_CONFIG_FILE": ("variable.toml", "variable.sock"),
    "LEVERET_MANAGEMENT_SOCKET": ("alone.sock", "alone.sock"),
    "LEVERET_API": ("http://127.0.0.1:5", "http://127.0.0.1:5"),
    "LEVERET_CONTEXT": ("variable", "http://127.0.0.1:6"),
    "LEVERET_URI": ("amqp://127.0.0.1:7", "http://127.0.0.1:8"),
}

#: Those that name a broker of this machine.
HERE: Final = {name: socket for name, (_, socket) in list(VARIABLES.items())[:3]}

ENVIRONMENTS: Final[dict[str, dict[str, str]]] = {
    "none": {},
    **{name: {name: value} for name, (value, _) in VARIABLES.items()},
    "all": {name: value for name, (value, _) in VARIABLES.items()},
}

#: A read and a change of each command that asks the API, `{}` standing where options may stand.
GROUPS: Final = ("{} ctl {} list_vhosts {}", "{} ctl {} add_vhost x {}", "{} list {} queues {}")
SINGLE: Final = (
    "{} status {}",
    "{} top {}",
    "{} backup --to new {}",
    "{} rabbitmqctl {} add_vhost x",
)


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory with settings files, and a user with contexts, of which one is current."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("LEVERET_API_PASSWORD", raising=False)
    set_variables(monkeypatch, {})
    Path("option.toml").write_text('data_dir = "of_option_file"', encoding="utf-8")
    Path("nearer.toml").write_text('management_socket = "nearer.sock"', encoding="utf-8")
    Path("variable.toml").write_text('management_socket = "variable.sock"', encoding="utf-8")
    numbers = {"option": 2, "nearer": 4, "variable": 6, "current": 8}
    contexts = Contexts.load()
    contexts.by_name = {
        name: Context(api=f"http://127.0.0.1:{number}", uri=f"amqp://127.0.0.1:{number}")
        for name, number in numbers.items()
    }
    contexts.by_name["empty"] = Context(user="ann")
    contexts.current = "current"
    contexts.save()


def set_variables(monkeypatch: pytest.MonkeyPatch, given: Mapping[str, str]) -> None:
    """Have the environment hold these variables, and no others that name a place."""
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
        if name in given:
            monkeypatch.setenv(name, given[name])


def run(line: str) -> int:
    """Run a command in this process; return its exit code."""
    with pytest.raises(SystemExit) as end:
        app(line.split(), prog_name="leveret")
    assert BrokerOptions() == LINE.before, "what a line says ends with it"
    assert isinstance(end.value.code, int)
    return end.value.code


def asked(capsys: pytest.CaptureFixture[str], line: str) -> str:
    """Run a command that finds no broker; return the place that it asked."""
    code = run(line)
    said = capsys.readouterr().err
    assert code == exits.UNAVAILABLE, f"{line}: {said}"
    return said.partition("no broker answers at ")[2].partition(": ")[0]


def lines(option: str, forms: tuple[str, ...] = (*GROUPS, *SINGLE)) -> list[str]:
    """Return command lines with an option at each spot where it may stand."""
    return [
        form.format(*(option if spot == at else "" for at in range(form.count("{}"))))
        for form in forms
        for spot in range(form.count("{}"))
    ]


# -- commands that ask the API ---------------------------------------------------------------------


@pytest.mark.parametrize("environment", ENVIRONMENTS)
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_precedes_the_environment_wherever_it_stands(
    option: str,
    environment: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_variables(monkeypatch, ENVIRONMENTS[environment])
    value, place = OPTIONS[option]
    forms = GROUPS if environment not in {"none", "all"} else (*GROUPS, *SINGLE)
    for line in lines(f"{option} {value}", forms):
        # A backup of a broker that does not run is made of its directory, where there is one.
        if "backup" in line and place.endswith(".sock"):
            assert run(line) == exits.UNUSABLE
            assert str(Path(place).parent) in capsys.readouterr().err
        else:
            assert asked(capsys, line) == place, line


@pytest.mark.parametrize("option", OPTIONS)
def test_of_an_option_that_is_given_twice_the_nearer_one_counts(
    option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    further, nearer = f"{option} {OPTIONS[option][0]}", f"{option} {NEARER[option][0]}"
    for form in GROUPS:
        for one, other in combinations(range(3), 2):
            words = [{one: further, other: nearer}.get(spot, "") for spot in range(3)]
            assert asked(capsys, form.format(*words)) == NEARER[option][1]


@pytest.mark.parametrize("variable", VARIABLES)
def test_a_variable_precedes_the_current_context(
    variable: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_variables(monkeypatch, ENVIRONMENTS[variable])
    for line in lines("", GROUPS)[::3]:
        assert asked(capsys, line) == VARIABLES[variable][1]


def test_of_variables_an_address_precedes_a_context_and_that_a_directory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = dict(ENVIRONMENTS["all"])
    set_variables(monkeypatch, everything)
    assert asked(capsys, "ctl add_vhost x") == VARIABLES["LEVERET_API"][1]
    del everything["LEVERET_API"]
    set_variables(monkeypatch, everything)
    assert asked(capsys, "ctl add_vhost x") == VARIABLES["LEVERET_CONTEXT"][1]
    del everything["LEVERET_CONTEXT"]
    set_variables(monkeypatch, everything)
    assert asked(capsys, "ctl add_vhost x") == VARIABLES["LEVERET_MANAGEMENT_SOCKET"][1]


def test_the_socket_of_the_environment_is_that_of_its_own_directory(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_variables(
        monkeypatch,
        {"LEVERET_DATA_DIR": "by_option", "LEVERET_MANAGEMENT_SOCKET": "alone.sock"},
    )
    assert asked(capsys, "ctl add_vhost x --data-dir by_option") == "alone.sock"
    assert asked(capsys, "ctl add_vhost x --data-dir other") == "other/management.sock"


def test_two_brokers_on_one_line_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for here, there in product(("--data-dir", "--config"), ("--api", "--context")):
        one, other = (f"{option} {OPTIONS[option][0]}" for option in (here, there))
        for first, second in product(range(3), range(3)):
            words = ["", "", ""]
            words[first] += f" {one}"
            words[second] += f" {other}"
            assert run("{} ctl {} add_vhost x {}".format(*words)) == exits.USAGE
            said = capsys.readouterr().err
            assert f"{here} names a broker on this machine and {there} another one" in said


def test_an_unknown_context_is_an_error_everywhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    unknown = [*lines("--context nope"), *(f"--context nope {name}" for name in COMMANDS)]
    for line in unknown:
        code = run(line)
        said = capsys.readouterr().err
        assert code == exits.CONFIG, f"{line}: {said}"
        assert "no context 'nope'" in said
    for more in ({}, {"LEVERET_API": "http://127.0.0.1:5"}, {"LEVERET_URI": "amqp://127.0.0.1:7"}):
        set_variables(monkeypatch, {"LEVERET_CONTEXT": "nope", **more})
        assert run("ctl add_vhost x") == exits.CONFIG
        assert run("publish q x") == exits.CONFIG


# -- commands that connect -------------------------------------------------------------------------


@pytest.mark.parametrize("environment", ENVIRONMENTS)
def test_a_uri_is_found_by_the_same_order(
    environment: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = ENVIRONMENTS[environment]
    set_variables(monkeypatch, variables)
    alone = 7 if "LEVERET_URI" in variables else 6 if "LEVERET_CONTEXT" in variables else 8
    for line, port in [
        ("{}", alone),
        ("-U amqp://127.0.0.1:1 {}", 1),
        ("--context option {}", 2),
        ("--context option -U amqp://127.0.0.1:1 {}", 1),
        ("--context option {} -U amqp://127.0.0.1:1", 1),
        ("-U amqp://127.0.0.1:3 {} -U amqp://127.0.0.1:1", 1),
    ]:
        more = ("consume q", "perf", "shell") if environment == "all" else ()
        for command in ("ping", "publish q x", *more):
            assert run(line.format(command)) == exits.UNAVAILABLE
            said = capsys.readouterr().err
            if (line, command) == ("{}", "ping") and environment in HERE:
                assert f"{HERE[environment]} does not answer" in said
            else:
                assert f"127.0.0.1:{port}" in said, (line, command)
    for option in ("--data-dir", "--config"):
        value, socket = OPTIONS[option]
        for line in (f"{option} {value} ping", f"ping {option} {value}"):
            assert run(line) == exits.UNAVAILABLE
            assert f"{socket} does not answer" in capsys.readouterr().err
            assert run(f"-U amqp://127.0.0.1:1 {line}") == exits.USAGE


def test_a_context_without_an_address_leads_nowhere(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    set_variables(monkeypatch, ENVIRONMENTS["LEVERET_DATA_DIR"])
    for command, lacks in (("publish q x", "`uri`"), ("ctl add_vhost x", "`api`")):
        assert run(f"--context empty {command}") == exits.CONFIG
        assert f"'empty' has no {lacks}" in capsys.readouterr().err


# -- options that a command has no use for ---------------------------------------------------------


def test_an_option_before_a_command_that_does_not_take_it_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert set(COMMANDS) - set(NAMED_BY) == {"config", "context", "demo", "man"}
    values = OPTIONS | {"--uri": ("amqp://127.0.0.1:1", "")}
    for command, (option, (value, _)) in product(NAMED_BY, values.items()):
        if option.removeprefix("--").replace("-", "_") in NAMED_BY[command]:
            continue
        assert run(f"{option} {value} {command}") == exits.USAGE
        said = capsys.readouterr().err
        assert f"leveret {command} does not use {option}: name the broker with " in said


def test_serve_takes_what_stands_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.toml").write_text("port = 70000", encoding="utf-8")
    assert run("--config bad.toml serve") == exits.CONFIG
    assert "port" in capsys.readouterr().err


# -- real brokers ----------------------------------------------------------------------------------


def test_a_change_reaches_the_broker_that_is_named(broker: BrokerProcess, tmp_path: Path) -> None:
    """The local broker, which the environment names, keeps what another one was to change."""
    contexts = Contexts.load()
    contexts.by_name["here"] = Context(api=f"http://127.0.0.1:{http_port(broker)}")
    contexts.save()
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    local = home | {"LEVERET_DATA_DIR": str(broker.data_dir), "LEVERET_URI": broker.uri}
    elsewhere = home | {
        "LEVERET_DATA_DIR": str(tmp_path / "none"),
        "LEVERET_API": "http://x.invalid",
    }

    wrong = run_leveret("--context", "option", "ctl", "add_vhost", "wrong", settings=local)
    assert wrong.returncode == exits.UNAVAILABLE
    unknown = run_leveret("--context", "nope", "ctl", "add_vhost", "wrong", settings=local)
    assert unknown.returncode == exits.CONFIG
    named = run_leveret("--context", "here", "ctl", "add_vhost", "right", settings=elsewhere)
    assert named.returncode == exits.OK, named.stderr
    listed = run_leveret("ctl", "list_vhosts", "--format", "tsv", settings=local).stdout
    assert b"right" in listed
    assert b"wrong" not in listed

    # A shell asks no API of the current context beside a URI that leads elsewhere.
    beside = home | {"LEVERET_URI": broker.uri}
    shell = run_leveret("shell", stdin=b"list queues\n", settings=beside)
    assert shell.returncode == exits.UNAVAILABLE
    assert b"no broker answers at leveret-data/management.sock" in shell.stderr
    assert b"LEVERET_URI is not used here" in shell.stderr
