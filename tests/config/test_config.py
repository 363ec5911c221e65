"""Settings: file < environment < flags, each fault by its name and place, no secret in any text."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from leveret import limits
from leveret.config import (
    RABBITMQ_VARIABLES,
    ConfigError,
    Settings,
    describe_settings,
    load,
)

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the settings of whoever runs the tests."""
    for setting in describe_settings():
        monkeypatch.delenv(setting.variable, raising=False)
    for variable in RABBITMQ_VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A settings file."""
    path = tmp_path / "leveret.toml"
    path.write_text('port = 1\nsync = "never"\nloopback_users = ["a", "b"]\n')
    return path


def test_defaults_are_safe_for_a_first_start() -> None:
    settings = load()
    assert (settings.host, settings.port) == ("127.0.0.1", 5672)
    assert settings.loopback_users == ("guest",)
    assert settings.sync == "always"
    assert settings.memory_bytes_max > 0


def test_a_flag_beats_the_environment_and_that_beats_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load({"config_file": file}).port == 1
    monkeypatch.setenv("RABBITMQ_NODE_PORT", "2")
    assert load({"config_file": file}).port == 2
    monkeypatch.setenv("LEVERET_PORT", "3")
    assert load({"config_file": file}).port == 3
    settings = load({"config_file": file, "port": "4"})
    assert settings.port == 4
    assert settings.sync == "never"


def test_the_file_may_be_named_by_the_environment(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEVERET_CONFIG_FILE", str(file))
    assert load().loopback_users == ("a", "b")


def test_rabbitmqs_variables_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {"port": "5673", "default_user": "u", "default_pass": "p", "default_vhost": "v"}
    for name, value in values.items():
        monkeypatch.setenv(RABBITMQ_VARIABLES[name], value)
    settings = load()
    assert settings.port == 5673
    assert (settings.default_user, settings.default_vhost) == ("u", "v")
    assert settings.default_pass.get_secret_value() == "p"


def test_an_empty_variable_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVERET_PORT", "")
    monkeypatch.setenv("RABBITMQ_NODE_PORT", "")
    assert load().port == 5672


def test_the_socket_lies_in_the_data_directory_unless_it_is_set() -> None:
    assert load({"data_dir": "/d"}).management_socket == Path("/d/management.sock")
    assert load({"management_socket": "/run/l.sock"}).management_socket == Path("/run/l.sock")


@pytest.mark.parametrize(
    ("text", "size"),
    [("4096", 4096), ("4KiB", 4096), ("5 kB", 5000), ("0.5mib", 524_288), ("8192b", 8192)],
)
def test_a_size_may_have_a_unit(text: str, size: int) -> None:
    assert load({"frame_bytes_max": text}).frame_bytes_max == size


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("port", 0, 65_535),
        ("channels_max", 1, 65_535),
        ("heartbeat_seconds", 0, 65_535),
        ("frame_bytes_max", 4096, 2**31 - 1),
        ("handshake_seconds", 1, 300),
        ("message_bytes_max", 0, 512 * 1024 * 1024),
        ("sync_interval_ms", 1, 60_000),
        ("login_failure_delay_ms", 0, 60_000),
        ("consumer_timeout_ms", 0, 2**40),
    ],
)
def test_numbers_hold_at_their_limits_and_not_one_past(name: str, least: int, most: int) -> None:
    # As much as the largest message needs, whatever the machine has.
    beside: dict[str, object] = {"memory_bytes_max": "4GiB"}
    assert getattr(load({name: least} | beside), name) == least
    assert getattr(load({name: str(most)} | beside), name) == most
    for beyond in (least - 1, most + 1):
        with pytest.raises(ConfigError, match=f"^{name}: .*flag --"):
            load({name: beyond} | beside)


def test_a_message_takes_an_eighth_of_memory_at_most(file: Path) -> None:
    most = limits.MESSAGE_BYTES_MAX
    assert load({"memory_bytes_max": "160MiB"}).message_bytes_max == 20 * 1024**2
    assert load({"memory_bytes_max": 8 * most}).message_bytes_max == most
    assert load({"memory_bytes_max": 16 * most}).message_bytes_max == most
    asked = {"memory_bytes_max": "160MiB", "message_bytes_max": "20MiB"}
    assert load(asked).message_bytes_max == 20 * 1024**2
    with pytest.raises(ConfigError, match="set it to at most 20971520") as caught:
        load(asked | {"message_bytes_max": 20 * 1024**2 + 1})
    assert caught.value.lines[0].startswith("message_bytes_max: 20971521 is more than an eighth of")
    assert caught.value.lines[0].endswith("at least 167772168 (flag --message-bytes-max)")
    # What is wrong itself is told of alone.
    with pytest.raises(ConfigError) as caught:
        load(asked | {"memory_bytes_max": "much"})
    assert [line.split(":")[0] for line in caught.value.lines] == ["memory_bytes_max"]


@pytest.mark.parametrize(
    "value", ["", "4", "4.3", "4.3.6.1", "4.3.6-rc.1", "v4.3.6", "4.3.6\n", "4.3.60000", "٤.3.6"]
)
def test_the_reported_version_is_three_numbers(value: str) -> None:
    assert load({}).rabbitmq_version == "3.13.7"
    assert load({"rabbitmq_version": "4.3.6"}).rabbitmq_version == "4.3.6"
    with pytest.raises(ConfigError) as caught:
        load({"rabbitmq_version": value})
    assert str(caught.value) == (
        "rabbitmq_version: should be three numbers, such as 3.13.7 or 4.3.6, each of at most "
        "four digits (flag --rabbitmq-version)"
    )


@pytest.mark.parametrize(
    ("value", "good"),
    [
        ("", True),
        ("max-age=0", True),
        ("max-age=31536000;includeSubDomains", True),
        ("max-age=31536000; includeSubDomains; preload", True),
        ("31536000", False),
        ("max-age=", False),
        ("max-age=1; other", False),
        ("max-age=1\n", False),
        ("max-age=1\r\nX-Other: 1", False),
    ],
)
def test_hsts_is_a_header_of_its_own_words(value: str, good: bool) -> None:
    """RFC 6797, section 6.1; no line end comes into the head of an answer."""
    if good:
        assert load({"https_hsts": value}).https_hsts == value
    else:
        with pytest.raises(ConfigError, match=r"^https_hsts: "):
            load({"https_hsts": value})


def test_all_faults_are_told_each_with_its_place(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text('log_level = "loud"\n')
    monkeypatch.setenv("LEVERET_SYNC", "sometimes")
    monkeypatch.setenv("RABBITMQ_NODE_PORT", "x")
    with pytest.raises(ConfigError) as caught:
        load({"config_file": file, "channels_max": 0})
    lines = sorted(str(caught.value).splitlines())
    assert [line.partition(":")[0] for line in lines] == [
        "channels_max",
        "log_level",
        "port",
        "sync",
    ]
    places = [line.rpartition("(")[2] for line in lines]
    assert places == [
        "flag --channels-max)",
        f"file {file})",
        "environment RABBITMQ_NODE_PORT)",
        "environment LEVERET_SYNC)",
    ]


def test_an_unknown_key_is_named_with_the_nearest_known(file: Path) -> None:
    file.write_text("prot = 5672\n")
    with pytest.raises(ConfigError, match=r"^prot: unknown setting; did you mean port\?"):
        load({"config_file": file})


def test_what_kubernetes_puts_into_the_port_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVERET_PORT", "tcp://10.0.0.1:5672")
    with pytest.raises(ConfigError, match="Kubernetes"):
        load()


@pytest.mark.parametrize("text", ["port =", "port = 1\nport = 2", 'config_file = "x"', "\xff\x00"])
def test_a_file_that_is_no_settings_file_is_refused(file: Path, text: str) -> None:
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match=f"^config_file: .*{file}"):
        load({"config_file": file})


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load({"config_file": tmp_path / "gone.toml"})


@pytest.mark.parametrize("name", ["default_user", "default_vhost"])
def test_the_name_of_a_first_object_has_no_control_character(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file with the line ends of Windows sets a variable so.
    monkeypatch.setenv(f"LEVERET_{name.upper()}", "ann\r")
    with pytest.raises(ConfigError) as refused:
        load()
    assert str(refused.value) == (
        f"{name}: the name of a new user or vhost contains the control character U+000D: choose a "
        f"name without it (environment LEVERET_{name.upper()})"
    )


def test_a_name_holds_at_a_short_strings_length_and_not_one_past() -> None:
    assert load({"default_vhost": "v" * 255}).default_vhost == "v" * 255
    for name in ("é" * 128, ""):
        with pytest.raises(ConfigError, match=r"^default_vhost"):
            load({"default_vhost": name})


def test_no_text_holds_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEVERET_DEFAULT_PASS", "hush")
    assert "hush" not in repr(load()) + str(load())
    with pytest.raises(ConfigError) as caught:
        load({"port": -1, "default_pass": ["hush"]})
    assert "hush" not in str(caught.value)


def test_settings_do_not_change() -> None:
    settings = load()
    with pytest.raises(ValidationError):
        settings.port = 1


def test_every_setting_is_described_and_documented() -> None:
    page = (DOCS / "reference/operation/configuration.md").read_text()
    settings = describe_settings()
    assert [setting.name for setting in settings] == list(Settings.model_fields)
    for setting in settings:
        assert setting.description
        row = f"| `{setting.name}` | {setting.kind.replace('|', chr(92) + '|')} |"
        assert row in page, f"the page on configuration has no row beginning {row}"
        assert setting.description in page, setting.name
        if setting.default:
            assert f"| `{setting.default}` |" in page, setting.name


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("LEVERET_PROT", "LEVERET_PORT"),
        ("LEVERET_DATADIR", "LEVERET_DATA_DIR"),
        ("LEVERET_HTP_PORT", "LEVERET_HTTP_PORT"),
        ("LEVERET_URL", "LEVERET_URI"),
    ],
)
def test_an_unknown_variable_is_named_with_the_nearest_known(
    monkeypatch: pytest.MonkeyPatch, name: str, near: str
) -> None:
    monkeypatch.setenv(name, "secret")
    with pytest.raises(ConfigError) as refused:
        load()
    assert str(refused.value) == (f"{name}: unknown setting; did you mean {near}? (environment)")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LEVERET_URI", "amqp://localhost"),
        ("LEVERET_PURE", "1"),
        ("LEVERET_TEST_WINDOW_BYTES", "0"),
        ("LEVERET_NOTHING", ""),
        ("LEVERET_SERVICE_HOST", "10.0.0.1"),
        ("LEVERET_SERVICE_PORT_AMQP", "5672"),
        ("LEVERET_PORT_5672_TCP_ADDR", "10.0.0.1"),
        ("LEVERET_UI_PORT", "tcp://10.0.0.1:80"),
    ],
)
def test_other_variables_are_not_the_brokers(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    load()
