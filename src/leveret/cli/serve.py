"""`leveret serve`: run a broker until SIGTERM or SIGINT.

The flags are created from the settings, with the settings' descriptions as help.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from leveret.cli import exits
from leveret.cli.helping.commands import single
from leveret.cli.place import BrokerOptions
from leveret.config import ConfigError, Setting, describe_settings, load

_HELP = """Run a broker until SIGTERM or SIGINT.

It prints its address, and "Server startup complete" when it accepts connections.
"""

#: The settings by the sections of the help.
SECTIONS: Final = {
    "Listening": (
        "host", "port", "amqp", "proxy_protocol", "handshake_seconds", "login_failure_delay_ms",
        "heartbeat_seconds", "compatibility", "rabbitmq_version",
    ),
    "TLS": (
        "tls_certificate", "tls_key", "tls_key_passphrase_file", "tls_chain", "tls_sni_dir",
        "tls_ca", "tls_verify", "tls_version_min", "tls_login_from", "tls_port",
    ),
    "Users and definitions": (
        "default_user", "default_pass_file", "default_vhost", "load_definitions", "loopback_users",
    ),
    "Storage": (
        "data_dir", "sync", "sync_interval_ms", "journal_bytes_max", "journal_file_bytes",
        "compact_records_min", "compact_live_percent", "disk_free_bytes_min", "ballast_bytes",
    ),
    "Limits": (
        "memory_bytes_max", "message_bytes_max", "frame_bytes_max", "channels_max",
        "definition_bytes_max", "queue_window_bytes", "memory_window_bytes",
        "connection_bytes_max", "unacked_bytes_max", "consumer_timeout_ms", "publisher_expiry_ms",
    ),
    "HTTP and metrics": (
        "http", "http_host", "http_port", "http_hosts", "http_proxy_protocol", "http_backup",
        "management_socket", "https", "https_host", "https_port", "https_hsts", "metrics",
        "metrics_host", "metrics_port", "metrics_prefix",
    ),
    "HareMQ": ("haremq_host", "haremq_port", "haremq_user", "haremq_vhost"),
    "Log and events": ("log_level", "log_format", "event_sample_every"),
    "": ("config_file", "uvloop"),
}  # fmt: skip
_SECTION_OF: Final = {name: section for section, names in SECTIONS.items() for name in names}


def serve(**flags: object) -> int:
    """Run a broker; return the exit code.  Raises: Failure."""
    before = BrokerOptions().checked()
    options = {"data_dir": before.data_dir, "config_file": before.config} | {
        name: value for name, value in flags.items() if value is not None
    }
    given = {name: value for name, value in options.items() if value is not None}
    try:
        settings = load(given)
    except ConfigError as error:
        raise exits.Failure("", exits.CONFIG, *error.lines) from None
    import_broker()
    from leveret.cli.serving.process import run

    return run(settings, read=lambda: load(given))


def import_broker() -> None:
    """Import the broker's modules, which take most of the CPU time of a start."""
    with _absent("rich"):
        importlib.import_module("leveret.cli.serving.process")


@contextmanager
def _absent(package: str) -> Iterator[None]:
    """Make imports of `package` fail, unless it is already imported.

    structlog imports rich for coloured tracebacks, which a broker does not use and which take a
    quarter of its start time.
    """
    if package in sys.modules:
        yield
        return
    sys.modules[package] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[package]


def app() -> typer.Typer:
    """Return the command, with a flag for each setting."""
    # typer creates options from a function's signature; this one has a parameter per setting.
    settings = {setting.name: setting for setting in describe_settings() if setting.flag}
    assert settings.keys() == _SECTION_OF.keys()
    parameters = [_parameter(settings[name]) for name in _SECTION_OF]
    serve.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    serve.__annotations__ = {p.name: p.annotation for p in parameters}
    return single("serve", serve, help=_HELP)


def _parameter(setting: Setting) -> inspect.Parameter:
    """Return the parameter for a setting's flag; its default, None, means "not given"."""
    # A path may contain any bytes; other values must be UTF-8.
    kind: Any = Path | None if setting.kind == "path" else str | None
    names = [setting.flag]
    text = setting.description.replace("`", "")
    if setting.kind == "true | false":
        kind = bool | None
        names = [f"{setting.flag}/--no-{setting.flag.removeprefix('--')}"]
    if setting.default:
        text = f"{text.removesuffix('.')} (default: {setting.default})."
    option = typer.Option(
        *names,
        help=text,
        show_default=False,
        metavar=_metavar(setting) or None,
        rich_help_panel=_SECTION_OF[setting.name],
    )
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind, option],
    )


def _metavar(setting: Setting) -> str:
    """Return the placeholder for the value in the help."""
    if setting.kind == "true | false":
        return ""
    if setting.kind == "names":
        return "NAME,..."
    if setting.kind == "path":
        return "DIR" if setting.name.endswith("_dir") else "FILE"
    return setting.kind.replace(" | ", "|") if "|" in setting.kind else setting.kind.upper()
