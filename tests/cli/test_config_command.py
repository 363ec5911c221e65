"""`leveret config from-rabbitmq`: settings for what has a counterpart, and reasons for the rest."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from leveret import machine
from leveret.cli import app, exits
from leveret.cli.settings.keys import CONVERTED
from leveret.config import load

pytestmark = pytest.mark.one_build

DOCS = Path(__file__).parents[2] / "docs"

EVERYWHERE = "0.0.0.0"  # noqa: S104 (in a file, not bound)

CONF = """\
# A broker in production.
listeners.tcp.default = 5673
listeners.tcp.second = 127.0.0.1:5674
listeners.ssl.default = 5671
ssl_options.cacertfile = /etc/ca.pem
ssl_options.certfile   = /etc/cert.pem
ssl_options.fail_if_no_peer_cert = true
ssl_options.verify = verify_peer
ssl_options.versions.1 = tlsv1.3
ssl_options.versions.2 = tlsv1.2
ssl_options.ciphers.1 = ECDHE-RSA-AES256-GCM-SHA384
default_user = $(FIRST_USER)
default_pass = 'a#b' # quoted
default_vhost = $(NOT_SET)
loopback_users.guest = false
heartbeat = 30   # seconds
channel_max = 0
handshake_timeout = 10500
frame_max = 100
vm_memory_high_watermark.relative = 0.5
disk_free_limit.absolute = 2GB
log.console = true
log.console.level = notice
log.file.level = debug
management.tcp.ip = 0.0.0.0
management.load_definitions = /etc/definitions.json
cluster_formation.peer_discovery_backend = k8s
mqtt.vhost = /
auth_backends.1 = ldap
my_own.key = 1
consumer_timeout = soon
"""


def test_a_file_becomes_settings_that_a_broker_takes(tmp_path: Path) -> None:
    file = tmp_path / "rabbitmq.conf"
    file.write_text(CONF)
    words = ["config", "from-rabbitmq", str(file)]
    done = CliRunner().invoke(app, words, env={"FIRST_USER": "ann"})
    assert done.exit_code == exits.OK
    memory = machine.memory().amount // 2
    assert tomllib.loads(done.stdout) == {
        "host": EVERYWHERE, "port": 5673, "tls_port": 5671, "tls_ca": "/etc/ca.pem",
        "tls_certificate": "/etc/cert.pem", "tls_verify": "required", "tls_version_min": "1.2",
        "default_user": "ann", "default_pass": "a#b", "loopback_users": [],
        "heartbeat_seconds": 30, "channels_max": 65_535, "handshake_seconds": 11,
        "memory_bytes_max": memory, "disk_free_bytes_min": 2_000_000_000, "log_level": "info",
        "http_host": EVERYWHERE, "load_definitions": "/etc/definitions.json",
    }  # fmt: skip
    assert "# ssl_options.verify (line 8)\ntls_verify = " in done.stdout
    settings = tmp_path / "leveret.toml"
    settings.write_text(done.stdout)
    assert load({"config_file": settings}).default_pass.get_secret_value() == "a#b"
    lines = done.stderr.splitlines()
    assert lines.pop() == "18 settings converted, 10 lines without a counterpart"
    told = [line.removeprefix(f"{file}:") for line in lines]
    assert told == [
        "3: listeners.tcp.second: a broker has one host, which is 0.0.0.0 already",
        "11: ssl_options.ciphers.1: this option of TLS is chosen by Leveret",
        "14: default_vhost: the environment has no variable NOT_SET: set it, and convert again",
        (
            "19: frame_max: frame_bytes_max would be refused: input should be greater than or "
            "equal to 4096"
        ),
        "24: log.file.level: the log goes to standard error: let systemd or the container keep it",
        "27: cluster_formation.peer_discovery_backend: a broker has no cluster: it is one node",
        "28: mqtt.vhost: this plugin of RabbitMQ has no counterpart",
        "29: auth_backends.1: users and permissions are the broker's own",
        (
            "30: my_own.key: this key is not known; if a plugin of RabbitMQ uses it, it has no "
            "effect here"
        ),
        "31: consumer_timeout: 'soon': it must be a whole number",
    ]


@pytest.mark.parametrize(
    ("line", "toml"),
    [
        ("listeners.tcp = none", {"amqp": False}),
        ("listeners.tcp.1 = ::1:5672", {"host": "::1", "port": 5672}),
        ("loopback_users = none", {"loopback_users": []}),
        ("loopback_users.ann = true", {"loopback_users": ["guest", "ann"]}),
        ("disk_free_limit.absolute = 5M", {"disk_free_bytes_min": 5 * 1024**2}),
        ("ssl_cert_login_from = common_name", {"tls_login_from": "common_name"}),
        ("ssl_cert_login_san_type = dns", {"tls_login_from": "san_dns"}),
        ("log.console.formatter = json", {"log_format": "json"}),
        ("default_pass = a#b", {"default_pass": "a"}),
        # Text that JSON and a terminal would treat in another way than TOML.
        (
            'default_pass = a\x7f\x85\u2028\\"\U0001f407',
            {"default_pass": 'a\x7f\x85\u2028\\"\U0001f407'},
        ),
        ("\ufeffdefault_user = ann\r", {"default_user": "ann"}),
        ("default_user = ann\ndefault_user = eve", {"default_user": "eve"}),
        ("heartbeat = 5" + " " * 1_000_000 + "#", {"heartbeat_seconds": 5}),
        (r"loopback_users.ann\.b = true", {"loopback_users": ["guest", "ann.b"]}),
        ("auth_mechanisms.1 = PLAIN", {}),
        ("", {}),
    ],
)
def test_a_line_becomes_a_setting(tmp_path: Path, line: str, toml: dict[str, object]) -> None:
    file = tmp_path / "rabbitmq.conf"
    file.write_text(f"{line}\n")
    done = CliRunner().invoke(app, ["config", "from-rabbitmq", str(file)])
    assert tomllib.loads(done.stdout) == toml
    assert done.stderr.endswith("0 lines without a counterpart\n")
    # The address that RabbitMQ would listen on is in a comment if nothing sets it.
    assert ('# host = "0.0.0.0"' in done.stdout) == (not toml.keys() & {"host", "amqp"})


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (
            "encrypted:c2VjcmV0",
            "the value is encrypted: decrypt it with rabbitmqctl decode, and convert again",
        ),
        ("$(BYTES)", "the variable BYTES is not UTF-8"),
        ("", "default_pass would be refused: an empty password allows no login"),
    ],
)
def test_a_password_that_cannot_be_used_is_named(
    tmp_path: Path, value: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYTES", "\udcff")
    file = tmp_path / "rabbitmq.conf"
    file.write_text(f"default_pass = {value}\n")
    done = CliRunner().invoke(app, ["config", "from-rabbitmq", str(file)])
    assert tomllib.loads(done.stdout) == {}
    assert done.stderr.splitlines()[0] == f"{file}:1: default_pass: {reason}"


def test_another_format_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rabbitmq.config"
    file.write_text("[{rabbit, [{tcp_listeners, [5672]}]}].\n")
    done = CliRunner().invoke(app, ["config", "from-rabbitmq", str(file)])
    assert done.exit_code == exits.USAGE
    assert "line 1 is not `key = value`: a rabbitmq.conf is needed" in done.stderr


def test_every_key_with_a_setting_is_documented() -> None:
    page = (DOCS / "reference/operation/configuration.md").read_text()
    documented = re.findall(r"^\| (`[a-z_.N…]+`(?:, `[a-z_.N…]+`)*) \|", page, re.MULTILINE)
    keys = [key.strip("`").replace("N", "1") for row in documented for key in row.split(", ")]
    for pattern, _ in CONVERTED:
        assert any(pattern.fullmatch(key) for key in keys), pattern.pattern
