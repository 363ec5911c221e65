"""The settings: one frozen object, created at start from flags, the environment and a file.

Flags override the environment, which overrides the file.  Importing this module takes about 0.1 s
(pydantic), so most commands do not.

Invariants: a setting has one name everywhere (`port` in the file, `LEVERET_PORT` in the
environment, `--port` as a flag).  The error for an invalid value names the setting and the source
of the value.  Error messages never contain a secret.  Secrets have no flag, because every user of
a machine can read the command lines of its processes.
"""

from __future__ import annotations

import difflib
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args, get_origin

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from leveret import limits, machine
from leveret.errors import PreconditionFailed
from leveret.names import check_new
from leveret.secret_files import read_secret
from leveret.session.settings import RABBITMQ_VERSION
from leveret.sizes import read_size

#: The prefix of environment variables.
ENVIRONMENT_PREFIX: Final = "LEVERET_"

#: RabbitMQ's variables, which its Docker image and testcontainers use; ours take precedence.
RABBITMQ_VARIABLES: Final = {
    "port": "RABBITMQ_NODE_PORT",
    "default_user": "RABBITMQ_DEFAULT_USER",
    "default_pass": "RABBITMQ_DEFAULT_PASS",
    "default_pass_file": "RABBITMQ_DEFAULT_PASS_FILE",
    "default_vhost": "RABBITMQ_DEFAULT_VHOST",
}

#: Variables with the prefix that commands, the build or tests use, and that are not settings.
OTHER_VARIABLES: Final = (
    "LEVERET_URI",
    "LEVERET_URI_FILE",
    "LEVERET_API",
    "LEVERET_API_PASSWORD",
    "LEVERET_API_PASSWORD_FILE",
    "LEVERET_CA_FILE",
    "LEVERET_CERTIFICATE_FILE",
    "LEVERET_KEY_FILE",
    "LEVERET_CONTEXT",
    "LEVERET_TRACEBACK",
    "LEVERET_PURE",
    "LEVERET_REQUIRE_COMPILED",
    "LEVERET_EXPECT_BUILD",
    "LEVERET_SPARK_TEST_PASSWORD",
)
_TEST_PREFIX: Final = "LEVERET_TEST_"

#: Variables that Kubernetes sets for a service with this prefix, unless enableServiceLinks is
#: false.
_SERVICE_LINK: Final = re.compile(r"_SERVICE_(HOST|PORT)|_PORT_\d+_(TCP|UDP|SCTP)")
_SERVICE_ADDRESS: Final = re.compile(r"(tcp|udp|sctp)://")

#: The name of the management socket in the data directory.
MANAGEMENT_SOCKET: Final = "management.sock"

#: The share of the memory, except the program's own, that messages may use before publishers are
#: blocked.
MEMORY_SHARE: Final = 0.4

#: The maximum size of a settings file, also for reads from an endless device.
_FILE_BYTES_MAX: Final = 1024 * 1024

#: A version in RabbitMQ's form, with numbers that every client can store.
_VERSION: Final = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}\.[0-9]{1,4}")

#: Secrets, and the settings that name a file with them; only one of the two may be set.
_SECRET_FILES: Final = {
    "default_pass": "default_pass_file",
    "tls_key_passphrase": "tls_key_passphrase_file",
}

#: pydantic's error type for a default that depends on an invalid value.
_FOLLOWS: Final = "default_factory_not_called"


class ConfigError(Exception):
    """Invalid settings; `lines` has a line for each, with its name and its source."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


def _size(value: object) -> object:
    """Convert a size such as `512 MiB` to bytes; return other values unchanged."""
    if not isinstance(value, str):
        return value
    return read_size(value)


def _names(value: object) -> object:
    """Split names separated by commas; return other values unchanged."""
    if isinstance(value, str):
        return tuple(name.strip() for name in value.split(",") if name.strip())
    return value


def _short_string(value: str) -> str:
    """Return `value` if it fits an AMQP short string.  Raises: ValueError."""
    if len(value.encode()) > limits.SHORT_STRING_BYTES_MAX:
        raise ValueError(f"is longer than {limits.SHORT_STRING_BYTES_MAX} bytes")
    return value


def _new_name(value: str) -> str:
    """Return the name of a new object.  Raises: ValueError if it has a control character."""
    try:
        check_new(value, "user or vhost")
    except PreconditionFailed as error:
        raise ValueError(error.text) from None
    return value


def _memory() -> int:
    """Return the default of `memory_bytes_max` for this process."""
    return memory_share(machine.memory().amount)


def memory_share(total: int) -> int:
    """Return the default of `memory_bytes_max` for a process that may use `total` bytes."""
    # If most of the memory is the program's own, use a share of a quarter of all memory.
    return int(max(total - limits.PROGRAM_BYTES, total // 4) * MEMORY_SHARE)


def _three_numbers(value: str) -> str:
    """Check that a version has three numbers, as clients of RabbitMQ expect."""
    if not _VERSION.fullmatch(value):
        raise ValueError(
            "should be three numbers, such as 3.13.7 or 4.3.6, each of at most four digits"
        )
    return value


def _power_of_two(number: int) -> int:
    """Check that a sampling interval is a power of 2, or 0."""
    if number & (number - 1):
        raise ValueError("should be a power of 2, or 0")
    return number


def _management_socket(data: dict[str, Any]) -> Path:
    """Return the default of `management_socket`: a socket in the data directory."""
    return Path(data.get("data_dir", ".")) / MANAGEMENT_SOCKET


def _default_pass(data: dict[str, Any]) -> SecretStr:
    """Return the default of `default_pass`: the secret in `default_pass_file`, or `guest`."""
    path = data.get("default_pass_file")
    return SecretStr(read_secret(path) if path else "guest")


def _http_host(data: dict[str, Any]) -> str:
    """Return the default of `http_host`: the address for AMQP."""
    return str(data.get("host", "127.0.0.1"))


def _https_host(data: dict[str, Any]) -> str:
    """Return the default of `https_host`: the address for HTTP."""
    return str(data.get("http_host", _http_host(data)))


def _haremq_user(data: dict[str, Any]) -> str:
    """Return the default of `haremq_user`: the user created in an empty data directory."""
    return str(data.get("default_user", "guest"))


def _haremq_vhost(data: dict[str, Any]) -> str:
    """Return the default of `haremq_vhost`: the vhost created in an empty data directory."""
    return str(data.get("default_vhost", "/"))


def _memory_window(data: dict[str, Any]) -> int:
    """Return the default of `memory_window_bytes`: half of the memory limit."""
    return int(data["memory_bytes_max"]) // 2


def _definition_bytes(data: dict[str, Any]) -> int:
    """Return the default of `definition_bytes_max`: a quarter of the memory limit."""
    return int(data["memory_bytes_max"]) // 4


def _connection_bytes(data: dict[str, Any]) -> int:
    """Return the default of `connection_bytes_max`: half of the memory limit."""
    return int(data["memory_bytes_max"]) // 2


def _unacked_bytes(data: dict[str, Any]) -> int:
    """Return the default of `unacked_bytes_max`: a quarter of the memory limit."""
    return int(data["memory_bytes_max"]) // 4


def _message_bytes(data: dict[str, Any]) -> int:
    """Return the default of `message_bytes_max`, which is lower if there is little memory."""
    return min(limits.MESSAGE_BYTES_MAX, int(data["memory_bytes_max"]) // limits.MESSAGE_SHARE)


Size = Annotated[int, BeforeValidator(_size)]
EventSample = Annotated[int, AfterValidator(_power_of_two)]
Version = Annotated[str, AfterValidator(_three_numbers)]
Name = Annotated[str, StringConstraints(min_length=1), AfterValidator(_short_string)]
NewName = Annotated[Name, AfterValidator(_new_name)]
MetricsPrefix = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]{0,31}$")]
TransportSecurity = Annotated[
    str,
    StringConstraints(pattern=r"^(max-age=[0-9]{1,10}(; ?includeSubDomains)?(; ?preload)?)?$"),
]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_names)]


class Settings(BaseSettings):
    """All settings; see the description of each field."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=ENVIRONMENT_PREFIX,
        env_ignore_empty=True,
        validate_default=False,
        hide_input_in_errors=True,
    )

    config_file: Path | None = Field(
        None, description="The TOML file with settings; it cannot be set in the file itself."
    )
    host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="The address to listen on; `0.0.0.0` and `::` mean all addresses of the "
        "machine.",
    )
    port: int = Field(
        5672, ge=0, le=65_535, description="The port to listen on; 0 chooses a free one."
    )
    amqp: bool = Field(
        True,
        description="Whether to listen for AMQP without TLS on `port`; it does not affect "
        "`tls_port`.",
    )
    tls_certificate: Path | None = Field(
        None,
        description="The file of the broker's certificate (PEM), which may be followed by its "
        "chain. With it the broker listens for TLS on `tls_port` and `https_port`.",
    )
    tls_key: Path | None = Field(
        None,
        description="The file of the certificate's private key (PEM); by default the key is in "
        "the file of `tls_certificate`.",
    )
    tls_key_passphrase: SecretStr = Field(
        SecretStr(""),
        description="The passphrase of an encrypted key. It has no flag.",
    )
    tls_key_passphrase_file: Path | None = Field(
        None, description="A file with the passphrase of an encrypted key."
    )
    tls_chain: Path | None = Field(
        None,
        description="The file of the certificates between the broker's and its authority's (PEM), "
        "if they are not in the file of `tls_certificate`.",
    )
    tls_sni_dir: Path | None = Field(
        None,
        description="A directory of further certificates by the name that a client requests (SNI): "
        "`broker.example.org.pem`, or `*.example.org.pem`, each with its chain and its key.",
    )
    tls_ca: Path | None = Field(
        None,
        description="The file of the authorities' certificates for verifying client certificates "
        "(PEM).",
    )
    tls_verify: Literal["none", "optional", "required"] = Field(
        "none",
        description="Whether clients are asked for a certificate, and whether they must have one. "
        "If a client sends one, it must be valid.",
    )
    tls_version_min: Literal["1.2", "1.3"] = Field(
        "1.2", description="The minimum TLS version for clients."
    )
    tls_login_from: Literal[
        "distinguished_name", "common_name", "san_dns", "san_email", "san_uri"
    ] = Field(
        "distinguished_name",
        description="The part of a client's certificate with the name of the user for logins by "
        "the mechanism EXTERNAL.",
    )
    tls_port: int = Field(
        5671,
        ge=0,
        le=65_535,
        description="The port to listen on for AMQP over TLS if there is a `tls_certificate`; 0 "
        "chooses a free one.",
    )
    proxy_protocol: bool = Field(
        False,
        description="Whether AMQP clients connect through a proxy that sends each client's address "
        "in the PROXY protocol, version 1 or 2; all other connections are then refused.",
    )
    http_proxy_protocol: bool = Field(
        False,
        description="Whether clients of the HTTP API on TCP connect through a proxy that uses the "
        "PROXY protocol; all other connections are then refused. The metrics port does not accept "
        "this protocol.",
    )
    data_dir: Path = Field(
        Path("./leveret-data"),
        description="The directory for everything that survives a restart; it is created if it "
        "does not exist.",
    )
    default_user: NewName = Field(
        "guest", description="The user that is created in an empty data directory."
    )
    default_pass_file: Path | None = Field(
        None,
        description="A file whose first line is the password of that user, instead of "
        "`default_pass`.",
    )
    default_pass: SecretStr = Field(
        default_factory=_default_pass,
        description="The password of that user; `guest` by default. It has no flag.",
    )
    default_vhost: NewName = Field(
        "/", description="The vhost that is created in an empty data directory."
    )
    load_definitions: Path | None = Field(
        None,
        description="A file of definitions (JSON, as exported by RabbitMQ) that is added to the "
        "existing ones at every start; an invalid file ends the start.",
    )
    loopback_users: Names = Field(
        ("guest",),
        description="Users who may only log in from the broker's own machine, separated by commas.",
    )
    compatibility: Literal["rabbitmq", "leveret"] = Field(
        "rabbitmq",
        description="How the broker identifies itself. Clients such as kombu adapt to product "
        "and version, so it reports RabbitMQ and `rabbitmq_version` unless this is `leveret`.",
    )
    rabbitmq_version: Version = Field(
        RABBITMQ_VERSION,
        description="The version of RabbitMQ that is reported to clients and by the HTTP API and "
        "metrics. It does not change the behaviour of the broker, but may change that of clients.",
    )
    heartbeat_seconds: int = Field(
        limits.HEARTBEAT_SECONDS,
        ge=0,
        le=65_535,
        description="The heartbeat interval that is offered to clients; 0 offers none.",
    )
    frame_bytes_max: Size = Field(
        limits.FRAME_BYTES_MAX,
        ge=limits.FRAME_BYTES_MIN,
        le=2**31 - 1,
        description="The largest frame that is offered to clients.",
    )
    channels_max: int = Field(
        limits.CHANNELS_MAX,
        ge=1,
        le=65_535,
        description="The maximum number of open channels of a connection.",
    )
    memory_bytes_max: Size = Field(
        default_factory=_memory,
        ge=1024 * 1024,
        le=2**62,
        description="The memory that messages, definitions and connections may use before "
        "publishers are blocked. By default 40 % of the memory of the machine or the control group "
        "(container, systemd unit) that remains after 64 MiB for the program itself.",
    )
    message_bytes_max: Size = Field(
        default_factory=_message_bytes,
        ge=0,
        le=limits.CLIENT_MESSAGE_BYTES_MAX,
        description="The largest body of a message; a larger one closes its channel. 128 MiB by "
        "default, or an eighth of `memory_bytes_max` if that is less; more than an eighth is "
        "refused.",
    )
    handshake_seconds: int = Field(
        limits.HANDSHAKE_SECONDS_MAX,
        ge=1,
        le=300,
        description="The time limit from a client's connect to its open connection.",
    )
    login_failure_delay_ms: int = Field(
        3000,
        ge=0,
        le=60_000,
        description="The delay of the answer to a refused login, against guessing. A "
        "client that announced `authentication_failure_close` is answered at once.",
    )
    consumer_timeout_ms: int = Field(
        0,
        ge=0,
        le=2**40,
        description="The time that a delivery may stay unacked before its consumer is cancelled; 0 "
        "means no limit. The `x-consumer-timeout` of a queue or a consumer takes precedence.",
    )
    publisher_expiry_ms: int = Field(
        limits.PUBLISHER_EXPIRY_MS,
        ge=1000,
        le=limits.TTL_MS_MAX,
        description="The idle time after which the broker forgets a publisher with deduplication, "
        "or a sink that commits batches.",
    )
    definition_bytes_max: Size = Field(
        default_factory=_definition_bytes,
        ge=0,
        le=2**62,
        description="The memory that queues, exchanges, bindings, policies, parameters and users "
        "may use; beyond it new ones are refused. A quarter of `memory_bytes_max` by default. "
        "Definitions in the data directory are always restored.",
    )
    queue_window_bytes: Size = Field(
        limits.QUEUE_WINDOW_BYTES,
        ge=0,
        le=2**62,
        description="The memory that the waiting messages of one queue may use before new ones "
        "are written to disk.",
    )
    memory_window_bytes: Size = Field(
        default_factory=_memory_window,
        ge=0,
        le=2**62,
        description="The memory that messages may use before all queues write their waiting "
        "messages to disk; half of `memory_bytes_max` by default.",
    )
    connection_bytes_max: Size = Field(
        default_factory=_connection_bytes,
        ge=0,
        le=2**62,
        description="The memory that connections may use in addition to messages; beyond it no "
        "client can log in, and the connection that uses the most memory is closed. Half of "
        "`memory_bytes_max` by default.",
    )
    unacked_bytes_max: Size = Field(
        default_factory=_unacked_bytes,
        ge=65_536,
        le=2**62,
        description="The memory that unacked messages may use before the connections with most of "
        "them get no more deliveries; a quarter of `memory_bytes_max` by default.",
    )
    compact_records_min: int = Field(
        limits.COMPACT_RECORDS_MIN,
        ge=0,
        le=2**31,
        description="Segment files with more messages than this are compacted when few of them "
        "are live; others when they contain 4 MiB or more of dead messages.",
    )
    compact_live_percent: int = Field(
        limits.COMPACT_LIVE_PERCENT,
        ge=0,
        le=100,
        description="A segment file is compacted when less than this percentage of its messages "
        "is live; 0 never compacts.",
    )
    event_sample_every: EventSample = Field(
        0,
        ge=0,
        le=2**40,
        description="The broker records the events of every n-th message of each queue in the "
        "stream `amq.leveret.events` of its vhost: 1 means every message, otherwise a power of 2; "
        "0 means none.",
    )
    sync: Literal["always", "interval", "never"] = Field(
        "always",
        description="When written messages are synced to disk. `always`: before they are "
        "confirmed. `interval`: every `sync_interval_ms`; a power cut loses messages confirmed "
        "since. `never`: when the operating system writes them.",
    )
    sync_interval_ms: int = Field(
        100, ge=1, le=60_000, description="The time between two syncs if `sync` is `interval`."
    )
    journal_bytes_max: Size = Field(
        limits.JOURNAL_BYTES_MAX,
        ge=65_536,
        le=2**62,
        description="The size of the journal that starts a checkpoint.",
    )
    journal_file_bytes: Size = Field(
        limits.JOURNAL_FILE_BYTES,
        ge=65_536,
        le=2**31 - 1,
        description="The size at which a file of the journal is closed and the next one begins.",
    )
    disk_free_bytes_min: Size = Field(
        limits.DISK_FREE_BYTES_MIN,
        ge=0,
        le=2**62,
        description="The free space on the disk that publishers must leave: below it, plus the "
        "needs of a checkpoint, they are blocked.",
    )
    ballast_bytes: Size = Field(
        limits.BALLAST_BYTES,
        ge=0,
        le=2**40,
        description="The size of the file that is deleted when the disk is full despite "
        "`disk_free_bytes_min`, so that there is space for acks and deletes; 0 creates none.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="The lowest level that is logged."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="The format of the log, which goes to standard error."
    )
    management_socket: Path = Field(
        default_factory=_management_socket,
        description="The Unix socket of the HTTP API, only for the user that runs the broker; "
        "`management.sock` in the data directory by default.",
    )
    http: bool = Field(
        True,
        description="Whether to listen on TCP for HTTP, which serves the HTTP API and bulk reads "
        "of streams to users of the broker.",
    )
    http_host: str = Field(
        default_factory=_http_host,
        min_length=1,
        description="The address to listen on for HTTP; `host` by default.",
    )
    http_port: int = Field(
        15672, ge=0, le=65_535, description="The port to listen on for HTTP; 0 takes any free one."
    )
    http_hosts: Names = Field(
        (),
        description="Further host names of the broker's machine by which `loopback_users` may use "
        "the HTTP API, separated by commas. Addresses, localhost and the machine's own name are "
        "always allowed; a request for any other name may come from a page of another site.",
    )
    http_backup: Literal["secure", "any", "off"] = Field(
        "secure",
        description="Whether administrators may make backups over the HTTP API on TCP: over TLS or "
        "from the broker's own machine, over any connection, or not at all.",
    )
    metrics: bool = Field(
        True,
        description="Whether to serve metrics for Prometheus, on a separate port and on the ports "
        "of the HTTP API.",
    )
    metrics_port: int = Field(
        15692,
        ge=0,
        le=65_535,
        description="The port to listen on for Prometheus; 0 takes any free one.",
    )
    metrics_host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="The address to listen on for Prometheus. It needs no password, as in RabbitMQ:"
        " anyone who can reach it can read the names of queues, vhosts and connections.",
    )
    metrics_prefix: MetricsPrefix = Field(
        "rabbitmq",
        description="The prefix of the names of metrics that RabbitMQ also has.",
    )
    https: bool = Field(
        True,
        description="Whether to listen for HTTP over TLS if there is a `tls_certificate`.",
    )
    https_host: str = Field(
        default_factory=_https_host,
        min_length=1,
        description="The address to listen on for HTTP over TLS; `http_host` by default.",
    )
    https_port: int = Field(
        15671,
        ge=0,
        le=65_535,
        description="The port to listen on for HTTP over TLS; 0 takes any free one.",
    )
    https_hsts: TransportSecurity = Field(
        "",
        description="The `Strict-Transport-Security` header of answers over TLS, such as "
        "`max-age=31536000; includeSubDomains`; empty sends none.",
    )
    haremq_port: int | None = Field(
        None,
        ge=0,
        le=65_535,
        description="The port to listen on for clients of HareMQ; 0 chooses a free one. By default "
        "the broker does not listen for them. It needs the extra `haremq`.",
    )
    haremq_host: str = Field(
        "127.0.0.1",
        min_length=1,
        description="The address to listen on for clients of HareMQ. They do not log in: anyone "
        "who can reach it has the permissions of `haremq_user`.",
    )
    haremq_user: Name = Field(
        default_factory=_haremq_user,
        description="The user of HareMQ's clients; `default_user` by default.",
    )
    haremq_vhost: Name = Field(
        default_factory=_haremq_vhost,
        description="The vhost of HareMQ's clients; `default_vhost` by default.",
    )
    uvloop: bool = Field(
        True, description="Whether to run on uvloop, which is faster, if it is installed."
    )

    @field_validator("default_pass_file")
    @classmethod
    def _has_secret(cls, path: Path | None) -> Path | None:
        """Check that the file has a secret in its first line."""
        if path is not None:
            with suppress(OSError):
                # A pipe could be read only once, and might block.
                if not stat.S_ISREG(path.stat().st_mode):
                    raise ValueError(f"{path} is not a regular file: it is read several times")
            read_secret(path)
        return path

    @field_validator("default_pass")
    @classmethod
    def _has_password(cls, value: SecretStr) -> SecretStr:
        """Check that the first user could log in."""
        try:
            password = value.get_secret_value().encode()
        except UnicodeEncodeError:
            raise ValueError("it is not UTF-8") from None
        if not password:
            raise ValueError("an empty password allows no login")
        return value

    @field_validator("message_bytes_max")
    @classmethod
    def _fits_memory(cls, value: int, info: ValidationInfo) -> int:
        """Check that several messages of this size fit in memory."""
        # `memory_bytes_max` is missing if it is invalid.
        memory = info.data.get("memory_bytes_max")
        if memory is not None and value > memory // limits.MESSAGE_SHARE:
            raise ValueError(
                f"{value} is more than an eighth of memory_bytes_max ({memory}), and a few such "
                f"messages would fill the memory: set it to at most "
                f"{memory // limits.MESSAGE_SHARE}, or memory_bytes_max to at least "
                f"{value * limits.MESSAGE_SHARE}"
            )
        return value

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (pydantic's signature)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (as above)
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources by priority: flags, environment, RabbitMQ's variables, file."""
        given = init_settings() | {}
        path = given.get("config_file") or os.environ.get("LEVERET_CONFIG_FILE")
        return (
            init_settings,
            env_settings,
            InitSettingsSource(settings_cls, _from_rabbitmq(os.environ)),
            InitSettingsSource(settings_cls, read_settings_file(path)),
        )


def _from_rabbitmq(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that RabbitMQ's variables set."""
    given = {name: environment.get(variable) for name, variable in RABBITMQ_VARIABLES.items()}
    return {name: value for name, value in given.items() if value}


def read_settings_file(path: str | Path | None) -> dict[str, Any]:
    """Return the settings in a TOML file, or {} if `path` is empty.  Raises: ConfigError."""
    if not path:
        return {}
    try:
        with Path(path).open("rb") as file:
            data = file.read(_FILE_BYTES_MAX + 1)
        if len(data) > _FILE_BYTES_MAX:
            raise ConfigError(f"config_file: {path} is larger than {_FILE_BYTES_MAX} bytes")
        # Some editors begin a file with a byte order mark.
        found = tomllib.loads(data.decode("utf-8-sig"))
    except OSError as error:
        raise ConfigError(f"config_file: cannot read {path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"config_file: {path} is not TOML: {error}") from None
    if "config_file" in found:
        raise ConfigError(f"config_file: cannot be set in a settings file, such as {path}")
    return found


def load(flags: Mapping[str, object] | None = None) -> Settings:
    """Return the settings; `flags` contains the flags of the command line, by setting.

    Raises: ConfigError.
    """
    given = dict(flags or {})
    unknown = _unknown_variables(os.environ)
    if unknown:
        raise ConfigError(*unknown)
    try:
        found = Settings(**given)  # type: ignore[arg-type]  # checked by pydantic
    except ValidationError as error:
        faults = error.errors(include_url=False)
        lines = [
            _line(fault, partial(_place, flags=given))
            for fault in faults
            if fault["type"] != _FOLLOWS
        ]
        raise ConfigError(*lines) from None
    _check_secrets(found, partial(_place, flags=given))
    return found


def _check_secrets(found: Settings, place: Callable[[str], str]) -> None:
    """Check that no secret is set both itself and by a file.  Raises: ConfigError."""
    twice = [
        f"{file}: {secret} is set, too ({place(secret)}): set only one of them ({place(file)})"
        for secret, file in _SECRET_FILES.items()
        if secret in found.model_fields_set and getattr(found, file)
    ]
    if twice:
        raise ConfigError(*twice)


class _GivenSettings(Settings):
    """Settings from arguments only, without the environment and files."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 (pydantic's signature)
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (as above)
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (as above)
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003 (as above)
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the arguments as the only source."""
        return (init_settings,)


def given(settings: Mapping[str, object]) -> Settings:
    """Return settings from arguments only, without the environment and files.

    Raises: ConfigError.
    """
    try:
        found = _GivenSettings(**settings)  # type: ignore[arg-type]  # checked by pydantic
    except ValidationError as error:
        faults = error.errors(include_url=False)
        lines = [_line(fault, _of_program) for fault in faults if fault["type"] != _FOLLOWS]
        raise ConfigError(*lines) from None
    _check_secrets(found, _of_program)
    return found


def is_service_link(name: str, value: str) -> bool:
    """Return whether Kubernetes has set a variable for a service, by its name and its value."""
    return bool(_SERVICE_LINK.search(name) or _SERVICE_ADDRESS.match(value))


def _unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Return a line for each environment variable with the prefix that is not a setting."""
    settings = {ENVIRONMENT_PREFIX + name.upper() for name in Settings.model_fields}
    lines = []
    for name, value in environment.items():
        ours = name.startswith(ENVIRONMENT_PREFIX) and value
        if not ours or name in settings or name in OTHER_VARIABLES:
            continue
        if is_service_link(name, value) or name.startswith(_TEST_PREFIX):
            continue
        near = difflib.get_close_matches(name, [*settings, *OTHER_VARIABLES], 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        lines.append(f"{name}: unknown setting{hint} (environment)")
    return lines


def _line(details: ErrorDetails, place: Callable[[str], str]) -> str:
    """Return the line for a fault, with the setting's name, the cause and the source."""
    name = str(details["loc"][0]) if details["loc"] else "settings"
    if details["type"] == "extra_forbidden":
        near = difflib.get_close_matches(name, Settings.model_fields, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        return f"{name}: unknown setting{hint} ({place(name)})"
    text = details["msg"].removeprefix("Value error, ")
    text = text.partition(", unable to parse string as")[0]
    text = text[:1].lower() + text[1:]
    if os.environ.get(ENVIRONMENT_PREFIX + name.upper(), "").startswith("tcp://"):
        text += "; Kubernetes sets it for a service of that name unless enableServiceLinks is false"
    return f"{name}: {text} ({place(name)})"


def _of_program(_name: str) -> str:
    """Return the source of a setting in `given`."""
    return "keyword argument"


def _place(name: str, flags: Mapping[str, object]) -> str:
    """Return the source of a setting: the first that sets it, in order of precedence."""
    if name in flags:
        return f"flag {flag_of(name)}"
    if os.environ.get(ENVIRONMENT_PREFIX + name.upper()):
        return f"environment {ENVIRONMENT_PREFIX}{name.upper()}"
    if os.environ.get(RABBITMQ_VARIABLES.get(name, "")):
        return f"environment {RABBITMQ_VARIABLES[name]}"
    return f"file {flags.get('config_file') or os.environ.get('LEVERET_CONFIG_FILE')}"


# -- description -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting as shown in help and documentation; `flag` is empty for a secret."""

    name: str
    flag: str
    variable: str
    kind: str
    default: str
    description: str


def flag_of(name: str) -> str:
    """Return the flag of a setting."""
    return "--config" if name == "config_file" else "--" + name.replace("_", "-")


def describe_settings() -> list[Setting]:
    """Return all settings in the order of their declaration."""
    return [_describe(name, field) for name, field in Settings.model_fields.items()]


def _describe(name: str, field: FieldInfo) -> Setting:
    """Return the description of a setting."""
    secret = field.annotation is SecretStr
    return Setting(
        name=name,
        flag="" if secret else flag_of(name),
        variable=ENVIRONMENT_PREFIX + name.upper(),
        kind=_kind(name, field),
        default=_default(field),
        description=field.description or "",
    )


def _kind(name: str, field: FieldInfo) -> str:
    """Return the kind of a setting's value: its choices, or a word such as `size`."""
    kind = field.annotation
    if get_origin(kind) is Literal:
        return " | ".join(str(choice) for choice in get_args(kind))
    if kind is bool:
        return "true | false"
    if kind in {int, int | None}:
        return "size" if "bytes" in name else "number"
    if get_origin(kind) is tuple:
        return "names"
    return "path" if kind in {Path, Path | None} else "text"


def _default(field: FieldInfo) -> str:
    """Return the default as text, or "" if it is computed or does not exist."""
    value = field.default
    if value is None or value is PydanticUndefined:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)
