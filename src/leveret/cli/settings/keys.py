"""The keys of rabbitmq.conf: their settings here, or the reasons why there are none.

A converter gets the value of a line, the match of its key, and the settings from earlier lines, and
returns settings.  It raises `Unconvertible` with the reason, or ValueError for an invalid value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from leveret import machine
from leveret.sizes import read_size

Value = str | int | bool | list[str]
Settings = Mapping[str, Value]
Converter = Callable[[str, re.Match[str], Settings], Settings]

#: All addresses of the machine, where RabbitMQ listens if only a port is given.
_ANYWHERE: Final = "0.0.0.0"  # noqa: S104 (written to a file, not bound)

_PORT_MAX: Final = 65_535


class Unconvertible(Exception):
    """A line has no counterpart; the text is the reason."""


def _text(name: str) -> Converter:
    return lambda value, _match, _settings: {name: value}


def _number(name: str, *, zero: int = 0) -> Converter:
    """Return the converter of a number, of which 0 becomes `zero`."""
    return lambda value, _match, _settings: {name: _whole(value) or zero}


def _flag(name: str) -> Converter:
    return lambda value, _match, _settings: {name: _boolean(value)}


def _choice(name: str, choices: Mapping[str, str], reason: str) -> Converter:
    """Return the converter of one of several words; the reason is for all others."""

    def convert(value: str, _match: re.Match[str], _settings: Settings) -> Settings:
        if value not in choices:
            raise Unconvertible(f"{value!r}: {reason}")
        return {name: choices[value]}

    return convert


def _only(allowed: tuple[str, ...], reason: str) -> Converter:
    """Return the converter of a key whose `allowed` values need no setting."""

    def convert(value: str, _match: re.Match[str], _settings: Settings) -> Settings:
        if value.lower() not in allowed:
            raise Unconvertible(reason)
        return {}

    return convert


def _whole(value: str) -> int:
    """Return a whole number.  Raises: ValueError."""
    if not value.isascii() or not value.isdigit():
        raise ValueError("it must be a whole number")
    return int(value)


def _boolean(value: str) -> bool:
    """Return a truth value.  Raises: ValueError."""
    if value not in {"true", "false", "on", "off"}:
        raise ValueError("it must be true or false")
    return value in {"true", "on"}


def _bytes(value: str) -> int:
    """Return a size, for which RabbitMQ also accepts the units k, M and G.  Raises: ValueError."""
    return read_size(f"{value}iB" if value[-1:] in "kKMG" and value else value)


def _size(name: str) -> Converter:
    return lambda value, _match, _settings: {name: _bytes(value)}


def _share_of_memory(name: str) -> Converter:
    """Return the converter of a share of the memory of this machine."""

    def convert(value: str, _match: re.Match[str], _settings: Settings) -> Settings:
        try:
            share = float(value)
        except ValueError:
            raise ValueError("it must be a number") from None
        if not 0 < share <= 100:
            raise ValueError("it must be more than 0 and at most 100")
        return {name: int(machine.memory().amount * share)}

    return convert


def _listener(host: str, port: str, off: str) -> Converter:
    """Return the converter of a listener: a port, or an address and a port, or `none`."""

    def convert(value: str, _match: re.Match[str], settings: Settings) -> Settings:
        if value == "none":
            return {off: False} if off else {}
        address, _, number = value.rpartition(":")
        found: dict[str, Value] = {
            host: address.strip("[]") or _ANYWHERE, port: _whole(number)
        }  # fmt: skip
        for name, made in found.items():
            if settings.get(name, made) != made:
                raise Unconvertible(f"a broker has one {name}, which is {settings[name]} already")
        return found

    return convert


def _milliseconds(name: str) -> Converter:
    """Return the converter of a time in ms to a setting in seconds, rounded up."""
    return lambda value, _match, _settings: {name: -(-_whole(value) // 1000)}


def _loopback(value: str, match: re.Match[str], settings: Settings) -> Settings:
    """Convert `loopback_users = none` and `loopback_users.guest = false`."""
    name = match[1]
    if name is None:
        if value != "none":
            raise ValueError("it must be none; name a user in the key, as in loopback_users.guest")
        return {"loopback_users": []}
    known = settings.get("loopback_users", ["guest"])
    # A key writes the dots in a name as `\.`.
    name = name.replace("\\.", ".")
    others = [one for one in (known if isinstance(known, list) else []) if one != name]
    return {"loopback_users": [*others, name] if _boolean(value) else others}


def _verify(value: str, match: re.Match[str], settings: Settings) -> Settings:
    """Convert `ssl_options.verify` and `ssl_options.fail_if_no_peer_cert`."""
    if match[1] == "fail_if_no_peer_cert":
        return {"tls_verify": "required"} if _boolean(value) else {}
    if value not in {"verify_peer", "verify_none"}:
        raise ValueError("it must be verify_peer or verify_none")
    if value == "verify_none":
        return {"tls_verify": "none"}
    return {"tls_verify": settings.get("tls_verify", "optional")}


def _tls_version(value: str, _match: re.Match[str], settings: Settings) -> Settings:
    """Convert one of the versions of TLS; the lowest one counts."""
    version = {"tlsv1.2": "1.2", "tlsv1.3": "1.3"}.get(value)
    if version is None:
        raise Unconvertible(f"{value} is not supported: clients need TLS 1.2 or later")
    return {"tls_version_min": min(version, str(settings.get("tls_version_min", version)))}


def _login_from(value: str, match: re.Match[str], settings: Settings) -> Settings:
    """Convert `ssl_cert_login_from` and `ssl_cert_login_san_type`."""
    if match[1] == "san_type":
        names = {"dns": "san_dns", "email": "san_email", "uri": "san_uri"}
        if value not in names:
            raise Unconvertible(f"logins by {value} are not supported: use dns, email or uri")
        return {"tls_login_from": names[value]}
    if value == "subject_alternative_name":
        return {"tls_login_from": settings.get("tls_login_from", "san_dns")}
    if value not in {"common_name", "distinguished_name"}:
        raise ValueError("it must be common_name, distinguished_name or subject_alternative_name")
    return {"tls_login_from": value}


_LEVELS: Final = {
    "debug": "debug", "info": "info", "notice": "info", "warning": "warning", "error": "error",
    "critical": "error", "alert": "error", "emergency": "error",
}  # fmt: skip

_ONE_CERTIFICATE: Final = "HTTPS uses the certificate of tls_certificate, as AMQP over TLS does"
_TO_STDERR: Final = "the log goes to standard error: let systemd or the container keep it"
_NO_CLUSTER: Final = "a broker has no cluster: it is one node"
_NO_PLUGIN: Final = "this plugin of RabbitMQ has no counterpart"
_INTERNAL: Final = "this is not configurable: Leveret's store and processes differ from RabbitMQ's"

_CONVERTERS: Final[dict[str, Converter]] = {
    r"listeners\.tcp(?:\.\w+)?": _listener("host", "port", "amqp"),
    r"listeners\.ssl(?:\.\w+)?": _listener("host", "tls_port", ""),
    r"ssl_options\.cacertfile": _text("tls_ca"),
    r"ssl_options\.certfile": _text("tls_certificate"),
    r"ssl_options\.keyfile": _text("tls_key"),
    r"ssl_options\.password": _text("tls_key_passphrase"),
    r"ssl_options\.(verify|fail_if_no_peer_cert)": _verify,
    r"ssl_options\.versions\.\w+": _tls_version,
    r"ssl_cert_login_(from|san_type)": _login_from,
    r"proxy_protocol": _flag("proxy_protocol"),
    r"handshake_timeout": _milliseconds("handshake_seconds"),
    r"heartbeat": _number("heartbeat_seconds"),
    r"frame_max": _number("frame_bytes_max", zero=2**31 - 1),
    r"channel_max": _number("channels_max", zero=_PORT_MAX),
    r"max_message_size": _number("message_bytes_max"),
    r"consumer_timeout": _number("consumer_timeout_ms"),
    r"default_user": _text("default_user"),
    r"default_pass": _text("default_pass"),
    r"default_vhost": _text("default_vhost"),
    r"loopback_users(?:\.(.+))?": _loopback,
    r"(?:management\.)?load_definitions|definitions\.local\.path": _text("load_definitions"),
    r"definitions\.import_backend": _only(("local", "local_filesystem"), "only files are read"),
    r"vm_memory_high_watermark\.absolute": _size("memory_bytes_max"),
    r"vm_memory_high_watermark\.relative": _share_of_memory("memory_bytes_max"),
    r"disk_free_limit\.absolute": _size("disk_free_bytes_min"),
    r"disk_free_limit\.relative": _share_of_memory("disk_free_bytes_min"),
    r"management\.(?:tcp|listener)\.port": _number("http_port"),
    r"management\.(?:tcp|listener)\.ip": _text("http_host"),
    r"management\.listener\.ssl": _only(("false",), "set https_port for HTTPS, http = false"),
    r"management\.ssl\.port": _number("https_port"),
    r"management\.ssl\.ip": _text("https_host"),
    r"management\.hsts\.policy": _text("https_hsts"),
    r"prometheus\.tcp\.port": _number("metrics_port"),
    r"prometheus\.tcp\.ip": _text("metrics_host"),
    r"log\.(?:console\.|default\.)?level": _choice(
        "log_level", _LEVELS, "the log cannot be switched off; redirect standard error"
    ),
    r"log\.console\.formatter": _choice(
        "log_format", {"json": "json", "text": "text", "plaintext": "text"}, "it is json or text"
    ),
    r"log\.console": _only(("true",), "the log always goes to standard error"),
    r"log\.file": _only(("false",), _TO_STDERR),
    r"log\.exchange": _only(("false",), "the log has no exchange: read standard error"),
    r"log\.syslog": _only(("false",), _TO_STDERR),
    r"auth_backends\.\w+": _only(
        ("internal", "rabbit_auth_backend_internal"), "users and permissions are the broker's own"
    ),
    r"auth_mechanisms\.\w+": _only(
        ("plain", "amqplain", "external"),
        "this mechanism is not offered: PLAIN, AMQPLAIN and EXTERNAL are",
    ),
    r"default_user_tags\.administrator": _only(("true",), "the first user is an administrator"),
    r"default_permissions\.\w+": _only(
        (".*",), "the first user may use everything in the vhost: leveret ctl set_permissions"
    ),
}  # fmt: skip

_REASONS: Final = {
    r"cluster_name": "it is a global parameter: leveret ctl set_global_parameter cluster_name JSON",
    r"management\.ssl\..*": _ONE_CERTIFICATE,
    r"prometheus\.return_per_object_metrics": "the metrics of each object are at "
    "/metrics/per-object",
    r"prometheus\.(?:ssl|path)\b.*": "metrics are served without TLS at /metrics, and over HTTPS "
    "at the HTTP API's port",
    r"management\.path_prefix": "the HTTP API has no prefix: let a proxy remove it",
    r"management\.(?:rates_mode|sample_retention_policies.*|http_log_dir|db_cache_multiplier)|"
    r"(?:management_agent|collect_statistics|statistics).*": "rates are sampled by Leveret",
    r"management\..*": "this option of the management plugin has no counterpart",
    r"ssl_options\..*": "this option of TLS is chosen by Leveret",
    r"ssl_handshake_timeout": "handshake_seconds limits the TLS handshake, too",
    r"initial_frame_max": "frames before the login are limited by Leveret",
    r"tcp_listen_options.*|num_acceptors.*|reverse_dns_lookups|socket_writer.*": "the options of "
    "sockets are chosen by Leveret",
    r"default_user_tags\..*": "set the tags of the first user: leveret ctl set_user_tags",
    r"default_users\..*": "only one user is created: add others, or use load_definitions",
    r"default_queue_type": "it belongs to a vhost: leveret ctl update_vhost_metadata VHOST "
    "--default-queue-type TYPE",
    r"default_policies\..*": "use leveret ctl set_operator_policy, or load_definitions",
    r"default_limits\..*": "use leveret ctl set_vhost_limits, or load_definitions",
    r"connection_max|vhost_max|cluster_queue_limit|channel_max_per_node|consumer_max_per_channel|"
    r"session_max_per_connection|link_max_per_session|cluster_exchange_limit": "limits are those "
    "of vhosts and users: leveret ctl set_vhost_limits, set_user_limits",
    r"vm_memory_high_watermark_paging_ratio": "memory_window_bytes is a size: half of "
    "memory_bytes_max by default",
    r"vm_memory_.*|memory_monitor_interval|total_memory_available_override_value|"
    r"disk_monitor.*": "memory and disk are measured by Leveret",
    r"log\.file\..*|log\.syslog\..*|log\.dir": _TO_STDERR,
    r"log\..*": "log levels are not set by category",
    r"definitions\..*": "definitions are read from the file of load_definitions",
    r"password_hashing_module": "passwords are hashed with Argon2id; definitions with RabbitMQ's "
    "hashes can be imported",
    r"quorum_queue\.property_equivalence\..*": "arguments are always compared when a queue is "
    "declared again",
    r"cluster_.*|peer_discovery.*|mirroring_.*|queue_leader_locator|queue_master_locator|"
    r"net_ticktime|distribution\..*|mnesia_.*|khepri.*|raft\..*|quorum_.*": _NO_CLUSTER,
    r"(?:mqtt|stomp|web_mqtt|web_stomp|stream|shovel|federation|sharding|auth_ldap|auth_oauth2|"
    r"auth_http|auth_cache|aws|trust_store|tracing|event_exchange)\..*": _NO_PLUGIN,
    r"(?:deprecated_features|permit_deprecated_features|feature_flags)\..*": "there are no feature "
    "flags",
    r"queue_index_.*|msg_store_.*|classic_queue\..*|lazy_queue.*|credit_.*|message_.*|"
    r"background_gc.*|hipe_compile|backing_queue.*|delegate_count|halt_on_.*": _INTERNAL,
}

CONVERTED: Final = [(re.compile(key), made) for key, made in _CONVERTERS.items()]
UNSUPPORTED: Final = [(re.compile(key), reason) for key, reason in _REASONS.items()]
