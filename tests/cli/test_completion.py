"""What a shell completes: commands, options, and the names that the running broker has."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.cli.contexts.kept import Context, Contexts
from leveret.cli.management_client import ask
from leveret.client.blocking import connect
from support.brokers.broker_process import BrokerProcess
from support.commands.command_process import run_leveret
from support.http.http_streams import http_port

pytestmark = pytest.mark.commands


def completed(words: str, **settings: str) -> list[str]:
    """The completions of the last word, which may be empty."""
    line = words.split(" ")
    asked = {
        "_LEVERET_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(line) - 1),
    }
    done = run_leveret(settings={**asked, **settings})
    assert done.stderr == b""
    return [line for line in done.stdout.decode().splitlines() if line]


def test_commands_and_options_are_completed() -> None:
    assert completed("leveret st") == ["status", "store"]
    assert completed("leveret ctl set_per") == ["set_permissions"]
    assert "--if-empty" in completed("leveret ctl delete_queue --if")
    assert run_leveret("--show-completion", "bash").returncode == 0


def named(words: str, **settings: str) -> list[str]:
    """The names that complete the last word, as soon as the broker answers in time."""
    while not (found := completed(words, **settings)):
        pass
    return found


def test_names_are_those_of_the_broker(broker: BrokerProcess) -> None:
    with connect(broker.uri) as connection, connection.channel() as channel:
        for name in ("tab a", "tab.b", "tabc", "--uri=amqp://tab", "=tab"):
            channel.queue_declare(name, exclusive=True)
        here = {"LEVERET_DATA_DIR": str(broker.data_dir)}
        assert named("leveret ctl purge_queue tab.", **here) == ["tab.b"]
        # Nothing that a shell would have to quote.
        assert named("leveret get ta", LEVERET_URI=broker.uri, **here) == ["tab.b", "tabc"]
        # Nor anything that the command would parse as an option, or that zsh would expand.
        assert {"--uri=amqp://tab", "=tab"}.isdisjoint(named("leveret ctl purge_queue ", **here))
        by_option = f"leveret --data-dir {broker.data_dir} publish x --exchange amq.t"
        assert named(by_option) == ["amq.topic"]
        assert "/" in named("leveret ctl list_queues -p ", **here)
        # The names of this machine's broker are not those of another machine.
        assert completed("leveret get ta", LEVERET_URI="amqp://192.0.2.1", **here) == []


def test_names_are_those_of_the_vhost_that_the_command_uses(
    broker: BrokerProcess, tmp_path: Path
) -> None:
    here = {"LEVERET_DATA_DIR": str(broker.data_dir)}
    socket = broker.data_dir / "management.sock"
    ask(socket, "PUT", "/api/vhosts/v", {})
    every = {"configure": ".*", "write": ".*", "read": ".*"}
    ask(socket, "PUT", "/api/permissions/v/guest", every)
    uri = f"{broker.uri.rpartition('/')[0]}/v"
    api = f"http://127.0.0.1:{http_port(broker)}"
    Contexts(tmp_path / "leveret" / "contexts.toml", {"c": Context(api=api, uri=uri)}, "c").save()
    home = {"XDG_CONFIG_HOME": str(tmp_path)}
    with connect(uri) as there, there.channel() as other, connect(broker.uri) as usual:
        other.queue_declare("vhost.v", exclusive=True)
        usual.channel().queue_declare("vhost.usual", exclusive=True)
        assert named("leveret get vh", **home) == ["vhost.v"]
        assert named(f"leveret get --uri {uri} vh", **here) == ["vhost.v"]
        # It has an option for the vhost, and does not read the URI.
        assert named("leveret ctl purge_queue vh", LEVERET_URI=uri, **here) == ["vhost.usual"]


def test_without_a_broker_nothing_is_completed(tmp_path: Path) -> None:
    assert completed("leveret get ta", LEVERET_DATA_DIR=str(tmp_path)) == []
    assert completed("leveret ctl --context nope purge_queue ta") == []
