"""The values that a session is created with: limits, names, socket addresses, randomness.

None of them changes during the life of a connection.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Final

from mypy_extensions import i64, mypyc_attr

from leveret.limits import (
    CHANNELS_MAX,
    FRAME_BYTES_MAX,
    HANDSHAKE_SECONDS_MAX,
    HEARTBEAT_SECONDS,
    MESSAGE_BYTES_MAX,
)

#: The version of RabbitMQ that the broker reports by default.
RABBITMQ_VERSION: Final = "3.13.7"


@mypyc_attr(allow_interpreted_subclasses=True)
class Tokens:
    """A source of unguessable tokens for names that the broker generates."""

    @abstractmethod
    def token(self) -> str:
        """Return a new token: 22 characters of the URL-safe base-64 alphabet."""


class SessionSettings:
    """The settings of a session; sizes in bytes, times in the unit of their name."""

    def __init__(
        self,
        version: str,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        channels_max: int = CHANNELS_MAX,
        heartbeat_seconds: int = HEARTBEAT_SECONDS,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        handshake_ms: int = HANDSHAKE_SECONDS_MAX * 1000,
        login_failure_delay_ms: int = 3000,
        compatible: bool = True,
        loopback_users: tuple[str, ...] = ("guest",),
        cluster_name: str = "leveret@localhost",
        consumer_timeout_ms: int = 0,
        http_port: int = 0,
        tls_port: int = 0,
        https_port: int = 0,
        rabbitmq_version: str = RABBITMQ_VERSION,
    ) -> None:
        self.version = version
        #: The version of RabbitMQ that is reported to clients.
        self.rabbitmq_version = rabbitmq_version
        self.frame_bytes_max: i64 = frame_bytes_max
        self.channels_max: i64 = channels_max
        self.heartbeat_seconds: i64 = heartbeat_seconds
        self.message_bytes_max: i64 = message_bytes_max
        self.handshake_ms: i64 = handshake_ms
        self.login_failure_delay_ms: i64 = login_failure_delay_ms
        self.compatible = compatible
        self.loopback_users = loopback_users
        self.cluster_name = cluster_name
        #: How long a delivery may stay unacked if its queue sets no limit; 0 for no limit.
        self.consumer_timeout_ms: i64 = consumer_timeout_ms
        #: The ports of the HTTP and HTTPS listeners; 0 for none.
        self.http_port: i64 = http_port
        self.https_port: i64 = https_port
        #: The port of the AMQP listener with TLS; 0 for none.
        self.tls_port: i64 = tls_port

    def server_properties(self) -> dict[str, object]:
        """Return the server properties of connection.start.

        In compatible mode, product and version are RabbitMQ and `rabbitmq_version`: kombu and
        others choose the meaning of basic.qos by them.
        """
        capabilities: dict[str, object] = {
            "publisher_confirms": True,
            "exchange_exchange_bindings": True,
            "basic.nack": True,
            "consumer_cancel_notify": True,
            "connection.blocked": True,
            "consumer_priorities": True,
            "authentication_failure_close": True,
            "per_consumer_qos": True,
            "direct_reply_to": True,
        }
        properties: dict[str, object] = {
            "capabilities": capabilities,
            "cluster_name": self.cluster_name,
            "copyright": "Copyright (c) the Leveret authors",
            "information": "Licensed under the Apache License 2.0",
            "platform": f"Leveret {self.version}" if self.compatible else "Python",
            "product": "RabbitMQ" if self.compatible else "Leveret",
            "version": self.rabbitmq_version if self.compatible else self.version,
        }
        if self.http_port > 0:
            # Leveret only: clients that read streams in bulk find the HTTP listener by it.
            properties["http_port"] = int(self.http_port)
        if self.https_port > 0:
            properties["https_port"] = int(self.https_port)
        return properties


class Security:
    """The TLS version and cipher of a connection, both empty without TLS.

    `certificate_name` is the name in the client's verified certificate, which is the user of an
    EXTERNAL login; empty without a certificate.
    """

    def __init__(self, version: str = "", cipher: str = "", certificate_name: str = "") -> None:
        self.version = version
        self.cipher = cipher
        self.certificate_name = certificate_name


#: The security of connections without TLS.
PLAIN: Final = Security()


class Peer:
    """The two ends of the socket; `loopback` is True if the peer has a loopback address."""

    def __init__(
        self,
        host: str,
        port: int,
        local_host: str,
        local_port: int,
        loopback: bool,
        security: Security = PLAIN,
    ) -> None:
        self.host = host
        self.port = port
        self.local_host = local_host
        self.local_port = local_port
        self.loopback = loopback
        self.security = security

    @property
    def name(self) -> str:
        """The connection's name as RabbitMQ writes it."""
        return f"{self.host}:{self.port} -> {self.local_host}:{self.local_port}"
