"""All listeners of a broker: AMQP, HareMQ, HTTP and the operator's Unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
from contextlib import AbstractAsyncContextManager
from functools import partial

from pydantic import SecretStr

from leveret import __version__
from leveret.app.directories import other_writers
from leveret.app.engine import Engine
from leveret.app.ground import Ground
from leveret.app.parts import SystemTokens
from leveret.config import Settings
from leveret.haremq.connection import HareShared
from leveret.haremq.listener import HareListener
from leveret.haremq.requests import HareCodec
from leveret.limits import OPENING_PERCENT
from leveret.management.backup.backups import Backups
from leveret.management.backup.source import FileSource, listed
from leveret.management.chunk_source import ChunkSource
from leveret.management.connections.address import ListenAddress
from leveret.management.keeper import GateKeeper
from leveret.management.listening.doors import Doors
from leveret.management.listening.listeners import HttpListeners
from leveret.management.login.host import own_names
from leveret.management.metrics.totals import Scrapes, Walks
from leveret.management.operator import Operator
from leveret.management.sampling.sampler import Sampler
from leveret.server import descriptors
from leveret.server.acceptor import accepting
from leveret.server.authentication import has_password
from leveret.server.descriptors import ConnectionLimits
from leveret.server.direct.client import DirectClient, DirectClients
from leveret.server.listener import Listener
from leveret.server.opening.certificate_expiry import expires_of
from leveret.server.opening.certificate_name import LoginName
from leveret.server.opening.certificates import Certificates
from leveret.server.opening.opening import Open, Openings
from leveret.server.opening.peer_address import is_loopback
from leveret.server.opening.proxy import ProxyConnection
from leveret.server.opening.tls import Tls
from leveret.server.quiet import Quiet
from leveret.session.admission import Admission, network_of
from leveret.session.client_session import ClientSession
from leveret.session.settings import SessionSettings
from leveret.store.listing import read_some


class CannotListen(Exception):
    """Listening failed, or needs a missing package; the text gives the reason."""


def make_hare_codec(settings: Settings) -> HareCodec | None:
    """Return the decoder of HareMQ's requests, or None if the broker does not listen for HareMQ.

    Raises: CannotListen if the extra `haremq` is not installed.
    """
    if settings.haremq_port is None:
        return None
    try:
        from leveret.haremq.protobuf_codec import ProtobufCodec
    except ImportError as error:
        raise CannotListen(
            f"haremq_port needs the protobuf package ({error}): install the extra `haremq`, or "
            "remove the setting"
        ) from None
    return ProtobufCodec()


class Listeners:
    """The listeners of one broker, and their connection slots.

    Raises: TooFewDescriptors.
    """

    def __init__(
        self, ground: Ground, engine: Engine, tls: Certificates | None, codec: HareCodec | None
    ) -> None:
        """Listen for HTTP; `tls` and `codec` are None if TLS or HareMQ is not configured."""
        self._ground = ground
        self._engine = engine
        self._quiet = Quiet(ground.clock)
        limits = self._connection_limits()
        #: The connection slots of AMQP and HareMQ.
        self.admission = Admission(limits.clients)
        self._openings = Openings(ground.settings.handshake_seconds, self._say)
        self._tls: Tls | None = None
        if tls is not None:
            name = LoginName(ground.settings.tls_login_from)
            self._tls = Tls(self._openings, tls.context, name)
        self._sampler = Sampler(Walks(ground.broker, ground.clock), self._counts)
        self._backups = self._make_backups()
        chunks = ChunkSource(engine.runner.read_part)
        doors = self._make_doors(limits)
        operator = self._make_operator()
        ground.broker.consumer_added = partial(operator.queries.note_consumer, ground.clock)
        self.http = HttpListeners(ground.broker, operator, chunks, doors, self._say)
        self._keeper: GateKeeper | None = None
        self._start_http()
        self._amqp_settings = self._session_settings()
        self._direct = DirectClients(
            engine.runner, ground.broker, self._amqp_settings, SystemTokens()
        )
        self.amqp = ground.parts.listener(
            engine.runner,
            ground.broker,
            self._amqp_settings,
            engine.authenticator,
            self.admission,
            self._log_connection,
            self._say,
        )
        #: The ports for AMQP, AMQP over TLS and HareMQ; 0 before `start` or if not listening.
        self.port = 0
        self.tls_port = 0
        self.haremq_port = 0
        self.haremq = None if codec is None else self._make_haremq(codec)

    @property
    def admissions(self) -> list[Admission]:
        """The connection slots of all listeners."""
        return [self.admission, *self.http.admissions]

    def _connection_limits(self) -> ConnectionLimits:
        """Return the limits on open connections.  Raises: TooFewDescriptors."""
        limits = descriptors.connection_limits()
        if warning := descriptors.warning(limits.clients):
            self._ground.log.warning(warning)
        return limits

    def _make_doors(self, limits: ConnectionLimits) -> Doors:
        """Return the functions and limits that the HTTP listeners use to accept connections."""
        proxied = self._ground.settings.http_proxy_protocol
        plain = accepting(self._say, self._after_proxy(None, proxied))
        with_tls = None
        if self._tls is not None:
            with_tls = accepting(self._say, self._after_proxy(self._tls.open, proxied))
        return Doors(
            accepting(self._say),
            self._ground.clock,
            plain,
            with_tls,
            limits.http,
            limits.metrics,
            limits.operator,
        )

    def _start_http(self) -> None:
        """Listen for HTTP on TCP; AMQP sessions need its ports, so this is done first."""
        settings = self._ground.settings
        plain = (settings.http_host, settings.http_port) if settings.http else None
        https = settings.https and self._tls is not None
        tls = (settings.https_host, settings.https_port) if https else None
        if plain is not None or tls is not None:
            delay_ms = settings.login_failure_delay_ms
            self._keeper = GateKeeper(
                self._judge,
                is_loopback,
                settings.loopback_users,
                delay_ms,
                self._backoff,
                _names(settings),
            )
            self.http.start_tcp(plain, tls, self._keeper)
        if settings.metrics:
            self._start_metrics()

    def _make_backups(self) -> Backups:
        """Return the manager of backups over HTTP, whose files the bulk-read thread reads."""
        runner, disk = self._engine.runner, self._ground.disk
        journal = self._ground.broker.core.journal

        async def durable() -> int:
            runner.now()
            await runner.durable()
            return int(journal.durable_group)

        source = FileSource(
            lambda: self._engine.hold_files(True),
            lambda: self._engine.hold_files(False).cancel(),
            lambda: runner.in_bulk_thread(partial(listed, disk)),
            lambda path, at, size: runner.in_bulk_thread(partial(read_some, disk, path, at, size)),
        )
        allowed = self._ground.settings.http_backup
        return Backups(source, durable, self._ground.clock, self._say, allowed, is_loopback)

    def _make_operator(self) -> Operator:
        """Return the functions and data that the routes of the HTTP API use."""
        ground, engine = self._ground, self._engine
        return Operator(
            engine.runner.now,
            engine.runner.durable,
            engine.authenticator.hash,
            lambda: engine.hold_files(True),
            lambda: engine.hold_files(False).cancel(),
            ground.ending.broken,
            self._sampler,
            self._counts,
            self._scrapes(),
            self._addresses,
            self._open_direct,
            self._effective,
            recent=ground.parts.recent,
            backups=self._backups,
            hsts=ground.settings.https_hsts,
            rabbitmq_version=ground.settings.rabbitmq_version,
        )

    def _scrapes(self) -> Scrapes | None:
        """Return the source of totals for metrics, or None if metrics are disabled."""
        settings = self._ground.settings
        if not settings.metrics:
            return None
        return Scrapes(self._sampler.walks, settings.metrics_prefix, settings.rabbitmq_version)

    def _start_metrics(self) -> None:
        """Listen on the metrics port, and warn if other machines can connect."""
        settings = self._ground.settings
        host = settings.metrics_host
        self.http.start_metrics(host, settings.metrics_port)
        if self.http.metrics_port and host != "localhost" and not is_loopback(host):
            self._ground.log.warning(
                "metrics need no password: anyone who can reach the address can read the names of "
                "queues, vhosts and connections; set metrics_host to a loopback address",
                host=host,
            )

    def take_settings(self) -> None:
        """Apply the reloaded settings to new connections and new logins."""
        taken = self._ground.settings
        self._openings.seconds = taken.handshake_seconds
        if self._keeper is not None:
            self._keeper.loopback_users = taken.loopback_users
            self._keeper.names = _names(taken)
            self._keeper.login_failure_delay_ms = taken.login_failure_delay_ms
        settings = self._session_settings()
        settings.tls_port = self._amqp_settings.tls_port
        self._amqp_settings = settings
        self._direct.settings = settings
        self.amqp.settings = settings
        if self.haremq is not None:
            self.haremq.settings = self._session_settings()

    def _session_settings(self) -> SessionSettings:
        settings = self._ground.settings
        return SessionSettings(
            __version__,
            frame_bytes_max=settings.frame_bytes_max,
            channels_max=settings.channels_max,
            heartbeat_seconds=settings.heartbeat_seconds,
            message_bytes_max=settings.message_bytes_max,
            handshake_ms=settings.handshake_seconds * 10 * OPENING_PERCENT,
            login_failure_delay_ms=settings.login_failure_delay_ms,
            compatible=settings.compatibility == "rabbitmq",
            loopback_users=settings.loopback_users,
            consumer_timeout_ms=settings.consumer_timeout_ms,
            http_port=self.http.port,
            https_port=self.http.tls_port,
            rabbitmq_version=settings.rabbitmq_version,
        )

    async def start(self) -> None:
        """Listen for AMQP and on the operator's socket.  Raises: CannotListen."""
        settings = self._ground.settings
        await self._start_tls()
        if settings.amqp:
            opening = self._after_proxy(None, settings.proxy_protocol)
            self.port = await _listen(
                self.amqp, settings.host, settings.port, "host and port", opening
            )
        port = settings.haremq_port
        if self.haremq is not None and port is not None:
            host = settings.haremq_host
            names = "haremq_host and haremq_port"
            self.haremq_port = await _listen(self.haremq, host, port, names)
            self._tell_haremq()
        path = self._ground.parts.management_socket()
        if path is not None:
            self.http.start_unix(path)
        self._sampler.start()
        await self._warn_of_exposure()

    async def _warn_of_exposure(self) -> None:
        """Warn of exposed ports, a public password, and directories that others can write to."""
        settings = self._ground.settings
        socket = self._ground.parts.management_socket()
        for directory in dict.fromkeys([settings.data_dir, *([socket.parent] if socket else [])]):
            if others := other_writers(directory):
                self._ground.log.warning(
                    "other users can write to a directory of the broker, and so replace its files "
                    "and the socket to which leveret ctl sends passwords: remove the permission "
                    "(chmod go-w), or make the broker's user the owner (chown)",
                    directory=str(directory.absolute()),
                    others=others,
                )
        plain = {"AMQP": settings.host if settings.amqp else "127.0.0.1"}
        plain["HTTP"] = settings.http_host if settings.http else "127.0.0.1"
        for speaks, host in plain.items():
            if _is_exposed(host):
                self._ground.log.warning(
                    "a port without TLS can be reached from other machines: passwords and messages "
                    "can be read on the network; set tls_certificate and turn the port off "
                    "(amqp=false, http=false), or listen on a loopback address",
                    port=speaks,
                    host=host,
                )
        secure = [settings.host, settings.https_host] if self._tls is not None else []
        user = self._ground.broker.users.by_name.get("guest")
        if user is None or not any(_is_exposed(host) for host in (*plain.values(), *secure)):
            return
        loop = asyncio.get_running_loop()
        if await loop.run_in_executor(None, has_password, user, b"guest"):
            self._ground.log.warning(
                "the user guest has its default password, which everybody knows, and the broker "
                "can be reached from other machines; change it with leveret ctl change_password"
            )

    def stop(self) -> None:
        """Stop accepting AMQP and HareMQ connections, stop sampling, and end backups."""
        self._sampler.stop()
        self._backups.close()
        self.amqp.stop()
        if self.haremq is not None:
            self.haremq.stop()
        self._openings.stop()
        if self._tls is not None:
            self._tls.stop()

    async def _start_tls(self) -> None:
        """Listen for AMQP over TLS, if certificates are configured.  Raises: CannotListen."""
        settings = self._ground.settings
        if self._tls is not None:
            host, port, names = settings.host, settings.tls_port, "host and tls_port"
            opening = self._after_proxy(self._tls.open, settings.proxy_protocol)
            self.tls_port = await _listen(self.amqp, host, port, names, opening)
            self._amqp_settings.tls_port = self.tls_port
            self._say("info", f"listening on amqps://{host}:{self.tls_port}")

    def _after_proxy(self, opening: Open | None, proxied: bool) -> Open | None:
        """Return `opening`, preceded by the step that reads a PROXY header if `proxied`."""
        if not proxied:
            return opening
        return partial(ProxyConnection, self._openings, opening)

    def _tell_haremq(self) -> None:
        """Log the HareMQ address, and warn if other machines can connect."""
        settings = self._ground.settings
        host = settings.haremq_host
        self._say("info", f"listening for HareMQ on {host}:{self.haremq_port}")
        if host != "localhost" and not is_loopback(host):
            self._ground.log.warning(
                "clients of HareMQ do not log in: anyone who can reach the address has the "
                "permissions of the user; set haremq_host to a loopback address",
                host=host,
                user=settings.haremq_user,
            )

    def _make_haremq(self, codec: HareCodec) -> HareListener:
        """Return the listener for HareMQ clients."""
        settings = self._ground.settings
        return HareListener(
            self._engine.runner,
            self._ground.broker,
            self._session_settings(),
            HareShared(codec, settings.haremq_user, settings.haremq_vhost),
            self.admission,
            self._log_connection,
            self._say,
        )

    def _effective(self) -> dict[str, object]:
        """Return the settings in effect, without secrets."""
        settings = self._ground.settings
        secret = {
            name
            for name, field in type(settings).model_fields.items()
            if field.annotation is SecretStr
        }
        return settings.model_dump(mode="json", exclude=secret)

    def _open_direct(self, user: str, vhost: str) -> AbstractAsyncContextManager[DirectClient]:
        """Open an in-process channel to a vhost on behalf of a user."""
        return self._direct.channel(user, vhost)

    def _addresses(self) -> list[ListenAddress]:
        """Return the addresses of all listeners, with RabbitMQ's names of the protocols."""
        settings = self._ground.settings
        found = [ListenAddress("amqp", settings.host, self.port)] if self.port else []
        if self.haremq_port:
            found.append(ListenAddress("haremq", settings.haremq_host, self.haremq_port))
        if self.http.port:
            found.append(ListenAddress("http", settings.http_host, self.http.port))
        if self.tls_port:
            found.append(self._secure("amqp/ssl", settings.host, self.tls_port))
        if self.http.tls_port:
            found.append(self._secure("https", settings.https_host, self.http.tls_port))
        return found

    def _secure(self, protocol: str, host: str, port: int) -> ListenAddress:
        """Return an address with its certificate; an unreadable certificate counts as expired."""
        path = self._ground.settings.tls_certificate
        expires = 0.0
        with contextlib.suppress(OSError, ValueError, IndexError):
            expires = expires_of(b"" if path is None else path.read_bytes())
        return ListenAddress(protocol, host, port, str(path), expires)

    async def _judge(self, user: str, password: bytes, address: str) -> bool | None:
        return await self._engine.authenticator.judge(user, password, network_of(address))

    def _backoff(self, user: str, address: str) -> int:
        return self._engine.authenticator.backoff.factor(network_of(address), user)

    def _counts(self) -> dict[str, int]:
        """Return the counts of descriptors and connections, by RabbitMQ's names if it has them."""
        return {
            "fd_used": descriptors.used(),
            "fd_total": descriptors.limit(),
            "sockets_used": len(self.admission.slots),
            "sockets_total": int(self.admission.limit),
            "connections_expelled": int(self.admission.expelled + self.http.expelled),
            "connections_refused": int(self.admission.refused + self.http.refused),
            "log_lines_omitted": self._quiet.omitted,
            **self._engine.authenticator.counts(),
        }

    def _say(self, level: str, text: str) -> None:
        """Log a listener's message; warnings are rate-limited, since any peer can cause many."""
        said = self._quiet.judge(text) if level == "warning" else text
        if said is not None:
            getattr(self._ground.log, level)(said)

    def _log_connection(self, level: str, connection: ClientSession, text: str) -> None:
        # Rate-limited for clients that have not opened a vhost, and so may not have logged in.
        said = self._quiet.judge(text) if connection.vhost is None else text
        if said is not None:
            getattr(self._ground.log, level)(said, connection=connection.name)


def _names(settings: Settings) -> frozenset[str]:
    """Return the host names by which loopback users may reach the HTTP API."""
    return own_names(settings.http_host, settings.https_host, *settings.http_hosts)


def _is_exposed(host: str) -> bool:
    """Return whether other machines can reach a listener's address."""
    return host != "localhost" and not is_loopback(host)


async def _listen(
    listener: Listener, host: str, port: int, names: str, opening: Open | None = None
) -> int:
    """Start a listener; return its port.  Raises: CannotListen."""
    try:
        return await listener.start(host, port, opening)
    except OSError as error:
        # asyncio's text repeats the address; the error of an unresolved name has no number.
        number = error.errno or 0
        reason = os.strerror(number) if number > 0 else str(error.strerror or error)
        text = f"cannot listen for {listener.speaks} on {host}:{port}: {reason}"
        raise CannotListen(f"{text}; set {names} to another address") from None
