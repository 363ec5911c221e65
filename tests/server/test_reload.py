"""Settings that a broker takes on SIGHUP, and those that wait for its next start."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from leveret.app.reload import RELOADED
from leveret.client import blocking
from leveret.config import Settings
from leveret.errors import PreconditionFailed
from support.brokers.broker_process import BrokerProcess
from support.http.http_api import Api
from support.http.http_streams import HttpUser
from support.wire import raw

DOCS = Path(__file__).parents[2] / "docs/reference/operation/configuration.md"


@contextmanager
def configured(path: Path, text: str, *flags: str) -> Iterator[tuple[BrokerProcess, Api]]:
    """A broker with a file of settings, and its API."""
    file = path / "leveret.toml"
    file.write_text(text)
    with BrokerProcess(path / "data", flags=["--config", str(file), *flags]) as process:
        api = Api(process.data_dir / "management.sock")
        yield process, api
        api.close()


def reload(process: BrokerProcess, path: Path, text: str, said: str) -> str:
    """Change the file, send SIGHUP, and return the line of the log that follows."""
    (path / "leveret.toml").write_text(text)
    os.kill(process.pid, signal.SIGHUP)
    return process.expect_line(said)


#: What a proxy says of a client on another machine.
FROM_AFAR = b"PROXY TCP4 192.0.2.7 192.0.2.1 56324 5672\r\n"


def status_from_afar(port: int) -> int:
    """Ask the API as guest from another machine; return the status."""
    with HttpUser(port) as user:
        user.http.connect()
        user.http.sock.sendall(FROM_AFAR)
        return user.get("/api/whoami")[0]


def status_for(host: str, port: int) -> int:
    """Ask the API of a host as guest from this machine, through a proxy; return the status."""
    with HttpUser(port) as user:
        user.http.connect()
        user.http.sock.sendall(b"PROXY UNKNOWN\r\n")
        return user.get("/api/whoami", {**user.headers, "Host": host})[0]


def answer_from_afar(uri: str) -> str:
    """Log in by AMQP as guest from another machine; return the name of the answer."""
    with raw.dial(uri) as connection:
        connection.send(FROM_AFAR)
        connection.start(raw.Login(capabilities={"authentication_failure_close": True}))
        return connection.next_method().name


def got(api: Api, path: str) -> Any:
    """What a path of the API holds."""
    status, found = api.ask("GET", path)
    assert status == 200
    return found


def test_limits_are_taken_and_alarms_follow(tmp_path: Path) -> None:
    with configured(tmp_path, "") as (process, api):
        text = 'disk_free_bytes_min = "900TB"\nmemory_bytes_max = "64MiB"\n'
        line = reload(process, tmp_path, text, "settings reloaded")
        for name in ("memory_bytes_max", "definition_bytes_max", "disk_free_bytes_min"):
            assert name in line
        assert process.expect_line("low on disk, publishers are blocked")
        (node,) = got(api, "/api/nodes")
        assert (node["mem_limit"], node["disk_free_alarm"]) == (64 * 1024**2, True)
        found = got(api, "/api/config/effective")
        assert found["memory_bytes_max"] == 64 * 1024**2
        assert found["memory_window_bytes"] == 32 * 1024**2
        reload(process, tmp_path, 'memory_bytes_max = "64MiB"', "the disk has room again")
        (node,) = got(api, "/api/nodes")
        assert (node["mem_limit"], node["disk_free_alarm"]) == (64 * 1024**2, False)


def test_new_connections_begin_with_new_settings(tmp_path: Path) -> None:
    with configured(tmp_path, "message_bytes_max = 1000\n") as (process, _):
        with (
            blocking.connect(process.uri) as old,
            old.channel() as before,
        ):
            before.confirm_select()
            reload(process, tmp_path, "message_bytes_max = 10\n", "changed=message_bytes_max")
            # Who was there keeps what he began with.
            before.queue_declare("q")
            before.publish(bytes(100), "", "q")
            with blocking.connect(process.uri) as connection:
                channel = connection.channel()
                channel.confirm_select()
                channel.publish(bytes(10), "", "q")
                with pytest.raises(PreconditionFailed):
                    channel.publish(bytes(100), "", "q")
        assert process.terminate() == 0


def test_new_logins_are_judged_by_new_settings(tmp_path: Path) -> None:
    text = "login_failure_delay_ms = 0\nproxy_protocol = true\nhttp_proxy_protocol = true\n"
    with configured(tmp_path, text) as (process, api):
        listeners = got(api, "/api/overview")["listeners"]
        (port,) = [one["port"] for one in listeners if one["protocol"] == "http"]
        assert status_from_afar(port) == 401
        assert answer_from_afar(process.uri) == "connection.close"
        changed = text + "loopback_users = []\nhandshake_seconds = 300\n"
        line = reload(process, tmp_path, changed, "settings reloaded")
        assert "loopback_users" in line
        assert "handshake_seconds" in line
        assert status_from_afar(port) == 200
        assert answer_from_afar(process.uri) == "connection.tune"
        reload(process, tmp_path, text, "settings reloaded")
        assert status_from_afar(port) == 401
        assert status_for("broker.example", port) == 421
        reload(
            process, tmp_path, text + 'http_hosts = ["a", "Broker.Example."]', "changed=http_hosts"
        )
        assert status_for("broker.example", port) == 200
        assert status_for("other.example", port) == 421


def test_a_slow_handshake_ends_by_the_new_setting(tmp_path: Path) -> None:
    with configured(tmp_path, "handshake_seconds = 300\n") as (process, _):
        reload(process, tmp_path, "handshake_seconds = 1\n", "changed=handshake_seconds")
        with socket.create_connection(("127.0.0.1", process.port)) as silent:
            silent.settimeout(60)
            assert silent.recv(1) == b""


def test_the_log_has_another_level(tmp_path: Path) -> None:
    with configured(tmp_path, 'log_level = "error"\n') as (process, _):
        assert "starting" not in process.output
        reload(process, tmp_path, 'log_level = "info"\n', "changed=log_level")
        reload(process, tmp_path, 'log_level = "info"\n', "no setting changed")
        assert "listening for" not in process.output


def test_what_needs_a_restart_is_told(tmp_path: Path) -> None:
    with configured(tmp_path, "") as (process, api):
        text = 'default_pass = "secret"\npublisher_expiry_ms = 5000\nheartbeat_seconds = 5\n'
        line = reload(process, tmp_path, text, "changed settings need a restart")
        assert "default_pass" in line
        assert "publisher_expiry_ms" in line
        assert "secret" not in process.output
        found = got(api, "/api/config/effective")
        assert (found["heartbeat_seconds"], found["publisher_expiry_ms"]) == (5, 604_800_000)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("heartbeat_seconds = 5\nlog_levl = 'info'\n", "log_levl"),
        ("heartbeat_seconds = 5\nmemory_bytes_max = 1\n", "memory_bytes_max"),
        ("heartbeat_seconds = 5\nlog_level = \n", "leveret.toml"),
    ],
)
def test_settings_that_do_not_fit_change_nothing(tmp_path: Path, text: str, why: str) -> None:
    with configured(tmp_path, "") as (process, api):
        line = reload(process, tmp_path, text, "the settings were not reloaded")
        assert why in line
        assert got(api, "/api/config/effective")["heartbeat_seconds"] == 60
        with blocking.connect(process.uri):
            pass


def test_a_flag_is_still_before_the_file(tmp_path: Path) -> None:
    flags = ["--heartbeat-seconds", "20"]
    with configured(tmp_path, "heartbeat_seconds = 30\n", *flags) as (process, api):
        reload(process, tmp_path, "heartbeat_seconds = 40\n", "no setting changed")
        assert got(api, "/api/config/effective")["heartbeat_seconds"] == 20


def test_what_is_reloaded_is_documented() -> None:
    page = DOCS.read_text()
    section = page.partition("## Reloading")[2].partition("\n## ")[0]
    assert [name for name in RELOADED if f"`{name}`" not in section] == []
    assert [name for name in RELOADED if name not in Settings.model_fields] == []
