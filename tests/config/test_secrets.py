"""A secret may be in a file, for Docker and Kubernetes: `default_pass_file` for `default_pass`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from leveret.cli.contexts.kept import Context
from leveret.cli.contexts.remote import Remote
from leveret.cli.exits import Failure
from leveret.cli.place import uri_variable
from leveret.config import ConfigError, Settings, given, load
from leveret.secret_files import SECRET_BYTES_MAX, read_secret


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A file with a secret."""
    path = tmp_path / "secret"
    path.write_text("hush hush\r\nnot this line\n")
    return path


def test_every_secret_may_be_in_a_file() -> None:
    secrets = [name for name, one in Settings.model_fields.items() if one.annotation is SecretStr]
    assert secrets == ["tls_key_passphrase", "default_pass"]
    for name in secrets:
        assert f"{name}_file" in Settings.model_fields


@pytest.mark.parametrize("prefix", ["LEVERET", "RABBITMQ"])
def test_the_password_is_the_first_line_of_its_file(
    file: Path, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"{prefix}_DEFAULT_PASS_FILE", str(file))
    assert load().default_pass.get_secret_value() == "hush hush"
    monkeypatch.setenv(f"{prefix}_DEFAULT_PASS", "other")
    with pytest.raises(ConfigError) as refused:
        load()
    assert str(refused.value) == (
        f"default_pass_file: default_pass is set, too (environment {prefix}_DEFAULT_PASS): set "
        f"only one of them (environment {prefix}_DEFAULT_PASS_FILE)"
    )


def test_a_program_gives_a_secret_or_its_file(file: Path) -> None:
    assert given({"default_pass_file": file}).default_pass.get_secret_value() == "hush hush"
    with pytest.raises(ConfigError) as refused:
        given({"default_pass_file": file, "default_pass": "other"})
    assert str(refused.value) == (
        "default_pass_file: default_pass is set, too (keyword argument): set only one of them "
        "(keyword argument)"
    )


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "cannot read {}: No such file or directory"),
        (b"", "the first line of {} is empty"),
        (b"\nsecret", "the first line of {} is empty"),
        (b"\xef\xbb\xbf\r\n", "the first line of {} is empty"),
        (b"\xff", "the first line of {} is not UTF-8"),
        ("hush\n".encode("utf-16-le"), "the first line of {} contains a NUL"),
        (b"x" * (SECRET_BYTES_MAX + 1), "the first line of {} is longer than 65536 bytes"),
    ],
)
def test_a_file_without_a_secret_is_refused(
    tmp_path: Path, data: bytes | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    if data is not None:
        path.write_bytes(data)
    told = reason.format(path)
    with pytest.raises(ConfigError) as refused:
        load({"default_pass_file": path})
    assert str(refused.value) == f"default_pass_file: {told} (flag --default-pass-file)"
    for name in ("LEVERET_URI_FILE", "LEVERET_API_PASSWORD_FILE"):
        monkeypatch.setenv(name, str(path))
    with pytest.raises(Failure) as failed:
        uri_variable()
    assert failed.value.lines == [f"LEVERET_URI_FILE: {told}"]
    with pytest.raises(Failure) as failed:
        Remote.of(Context(api="http://host"))
    assert failed.value.lines == [f"LEVERET_API_PASSWORD_FILE: {told}"]


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "f"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match="is not a regular file: it is read several times"):
        load({"default_pass_file": path})


@pytest.mark.parametrize(
    ("password", "reason"),
    [("", "an empty password allows no login"), ("\udcff", "it is not UTF-8")],
)
def test_a_password_that_nobody_could_use_is_refused(password: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=f"default_pass: {reason}"):
        load({"default_pass": password})


def test_a_byte_order_mark_is_no_part_of_a_secret_and_of_the_settings(tmp_path: Path) -> None:
    path, settings = tmp_path / "f", tmp_path / "leveret.toml"
    path.write_text("hush\n", encoding="utf-8-sig")
    settings.write_text(f'default_pass_file = "{path}"\n', encoding="utf-8-sig")
    assert load({"config_file": settings}).default_pass.get_secret_value() == "hush"


def test_the_longest_secret_is_read(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("x" * SECRET_BYTES_MAX)
    assert read_secret(path) == "x" * SECRET_BYTES_MAX


def test_commands_read_their_secrets_from_files(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LEVERET_API_PASSWORD", raising=False)
    monkeypatch.setenv("LEVERET_API_PASSWORD_FILE", str(file))
    assert Remote.of(Context(api="http://host")).password == "hush hush"
    file.write_text("amqp://user:secret@host\n")
    monkeypatch.setenv("LEVERET_URI_FILE", str(file))
    monkeypatch.setenv("LEVERET_URI", "")
    assert uri_variable() == "amqp://user:secret@host"
    monkeypatch.setenv("LEVERET_URI", "amqp://other")
    assert uri_variable() == "amqp://other"
