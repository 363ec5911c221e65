"""The opening of a connection: start, login, tune, open (AMQP 0-9-1 section 2.2.4).

Argon2 is slow on purpose, so the authenticator may answer a login later.  Until then the connection
parses nothing.

Source: behaviours 1 to 6 (protocol header, SASL, refused logins, guest, tuning, vhosts).
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from leveret.errors import CommandInvalid, ConnectionForced, InternalError, NotAllowed
from leveret.escaping import unquoted
from leveret.limits import FRAME_BYTES_MIN
from leveret.session.admission import network_of
from leveret.session.authentication import Authenticator, Login
from leveret.session.connection.closing import Closing
from leveret.session.connection.heartbeat import Heartbeat
from leveret.session.connection.sasl import (
    EXTERNAL,
    MECHANISMS,
    MECHANISMS_WITH_CERTIFICATE,
    credentials,
)
from leveret.session.connection_base import Capabilities, ConnectionBase
from leveret.session.states import (
    AWAITING_OPEN,
    AWAITING_START_OK,
    AWAITING_TUNE_OK,
    OPEN,
    REFUSING_LOGIN,
    VERIFYING_LOGIN,
)
from leveret.wire.content.publish_marks import SESSION_PROPERTY, read_session
from leveret.wire.method import Method
from leveret.wire.methods import (
    ConnectionClose,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
)

#: The reason for turning a login away unverified.
TOO_MANY: Final = "too many logins wait for their passwords to be verified"


@final
class Handshake:
    """The opening of one connection, from the protocol header to connection.open-ok."""

    def __init__(
        self,
        connection: ConnectionBase,
        authenticator: Authenticator,
        heartbeat: Heartbeat,
        closing: Closing,
    ) -> None:
        self._connection = connection
        self._authenticator = authenticator
        self._heartbeat = heartbeat
        self._closing = closing
        self._begun_ms: i64 = connection.now_ms
        self.mechanism = ""
        self.client_properties: dict[str, object] = {}
        #: The id of the client's publish session, if any.
        self._session = b""
        #: When a login was refused, how long its answer is delayed, and the answer; None for none.
        self._refused_ms: i64 = 0
        self._delay_ms: i64 = 0
        self._refusal: ConnectionClose | None = None

    # -- the methods -------------------------------------------------------------------------------

    def start(self) -> None:
        """Answer the protocol header with connection.start."""
        connection = self._connection
        properties = connection.settings.server_properties()
        name = connection.peer.security.certificate_name
        mechanisms = MECHANISMS_WITH_CERTIFICATE if name else MECHANISMS
        connection.send(0, ConnectionStart(0, 9, properties, mechanisms, b"en_US"))
        connection.advance(AWAITING_START_OK)

    def step(self, method: Method) -> None:
        """Handle the next method of the handshake.

        Raises: CommandInvalid (503) out of order; SyntaxFault (502), NotAllowed (530).
        """
        state = self._connection.state
        if state == AWAITING_START_OK and isinstance(method, ConnectionStartOk):
            self._start_ok(method)
        elif state == AWAITING_TUNE_OK and isinstance(method, ConnectionTuneOk):
            self._tune_ok(method)
        elif state == AWAITING_OPEN and isinstance(method, ConnectionOpen):
            self._open(method)
        else:
            raise CommandInvalid(f"{method.NAME} before the connection is open")

    def _start_ok(self, method: ConnectionStartOk) -> None:
        """Begin to verify the login; the connection resumes when the login is answered."""
        connection = self._connection
        # The session id is secret, and client properties are shown to others.
        self._session = read_session(method.client_properties.pop(SESSION_PROPERTY, None))
        self.client_properties = method.client_properties
        connection.capabilities = Capabilities(method.client_properties)
        certificate_name = connection.peer.security.certificate_name
        external = method.mechanism == EXTERNAL and certificate_name != ""
        if external:
            user, password = certificate_name, b""
        else:
            user, password = credentials(method.mechanism, method.response)
        self.mechanism = method.mechanism
        connection.advance(VERIFYING_LOGIN)
        if user in connection.settings.loopback_users and not connection.peer.loopback:
            why = f"{method.mechanism} login refused: user '{user}' can only connect via localhost"
            self._refuse(why, 1)
            return
        login = StartLogin(self, user, password, network_of(connection.peer.host))
        if external:
            # The certificate has proved the name; just check that the user exists.
            login.answer(user in connection.broker.users.by_name)
            self.verified(login)
            return
        self._authenticator.begin(login)
        if login.answered:
            self.verified(login)
        else:
            login.waiting = True

    def _tune_ok(self, method: ConnectionTuneOk) -> None:
        """Apply the client's limits (behaviour 5: larger than offered is 530); 0 means no limit."""
        connection = self._connection
        settings = connection.settings
        frame_max = method.frame_max
        most = int(settings.frame_bytes_max)
        if frame_max != 0 and frame_max < FRAME_BYTES_MIN:
            raise NotAllowed(
                f"negotiated frame_max = {frame_max} is lower than the minimum allowed value "
                f"({FRAME_BYTES_MIN})"
            )
        if most != 0 and (frame_max == 0 or frame_max > most):
            raise NotAllowed(
                f"negotiated frame_max = {frame_max} is higher than the maximum allowed value "
                f"({most})"
            )
        channels = method.channel_max
        allowed = int(settings.channels_max)
        if allowed != 0 and (channels == 0 or channels > allowed):
            raise NotAllowed(
                f"negotiated channel_max = {channels} is higher than the maximum allowed value "
                f"({allowed})"
            )
        connection.tune(frame_max, channels)
        self._heartbeat.interval_ms = method.heartbeat * 1000
        connection.advance(AWAITING_OPEN)

    def _open(self, method: ConnectionOpen) -> None:
        """Open a vhost.

        Raises: NotAllowed (530) if it does not exist or cannot be opened; see `Broker.enter`.
        """
        connection = self._connection
        name = method.virtual_host
        if name not in connection.broker.vhosts:
            # Log this for the operator; the client must not learn whether the vhost exists.
            connection.log.append(("warning", f"user '{connection.user}': no vhost '{name}'"))
        connection.enter_vhost(name)
        connection.advance(OPEN)
        connection.send(0, ConnectionOpenOk())
        text = f"user '{connection.user}' authenticated and granted access to vhost "
        connection.log.append(("info", f"{text}'{name}'"))

    # -- the login ---------------------------------------------------------------------------------

    def is_verifying(self) -> bool:
        """Return whether the connection waits for the login; it may have been closed since."""
        return self._connection.state == VERIFYING_LOGIN

    def verified(self, login: StartLogin) -> None:
        """Send connection.tune, or refuse the login."""
        connection = self._connection
        user = login.user
        if login.turned_away:
            text = f"login turned away: user '{user}' - {TOO_MANY}"
            error = ConnectionForced(f"{TOO_MANY}; try again later")
            self._answer_late("warning", text, 1, ConnectionClose(error.code, error.short_text))
            return
        if not login.accepted:
            why = f"login refused: user '{user}' - invalid credentials"
            self._refuse(f"{self.mechanism} {why}", login.backoff)
            return
        connection.user = user
        if self._session:
            sessions = connection.broker.publish_sessions
            connection.publish_session = sessions.take(user, self._session, connection)
        settings = connection.settings
        tune = ConnectionTune(
            int(settings.channels_max),
            int(settings.frame_bytes_max),
            int(settings.heartbeat_seconds),
        )
        connection.send(0, tune)
        connection.advance(AWAITING_TUNE_OK)

    def verified_late(self, login: StartLogin) -> None:
        """Act on an answer that the connection waited for, and resume parsing."""
        if self.is_verifying():
            self.verified(login)
            self._connection.wake()
            self._connection.run()

    def broken(self, bug: Exception) -> None:
        """Close the connection with 541 for an unexpected exception, which changed nothing."""
        if self.is_verifying():
            self._connection.log.append(("error", f"internal error: {unquoted(bug)}"))
            self._connection.close(InternalError("see the broker's log"))

    def _refuse(self, text: str, backoff: int) -> None:
        """Refuse a login: send a close if the client understands it, else close the socket.

        `backoff` multiplies the usual delay.
        """
        # The same text for every refused login, to reveal nothing about the reason.
        said = (
            f"ACCESS_REFUSED - Login was refused using authentication mechanism {self.mechanism}. "
            "For details see the broker logfile."
        )
        # A client that understands the close gets it at once after its first failure.
        delays = backoff - 1 if self._connection.capabilities.failure_close else backoff
        self._answer_late("error", text, delays, ConnectionClose(403, said))

    def _answer_late(self, level: str, text: str, delays: int, close: ConnectionClose) -> None:
        """Send the close, or just end the connection, after `delays` times the usual delay.

        Only clients with the capability `authentication_failure_close` receive the close.
        """
        connection = self._connection
        connection.log.append((level, text))
        connection.advance(REFUSING_LOGIN)
        self._refused_ms = connection.now_ms
        self._delay_ms = connection.settings.login_failure_delay_ms * delays
        if connection.capabilities.failure_close:
            self._refusal = close
            if self._delay_ms == 0:
                self._answer_refused()

    def _answer_refused(self) -> None:
        """Send the close of a refused login, or just end the connection, after the delay."""
        if self._refusal is None:
            self._connection.finish()
        else:
            self._closing.begin(self._refusal)

    def tick(self, now_ms: i64) -> None:
        """Answer a refused login after its delay; end a handshake that takes too long."""
        connection = self._connection
        if connection.state == REFUSING_LOGIN:
            if now_ms - self._refused_ms >= self._delay_ms:
                self._answer_refused()
        elif now_ms - self._begun_ms >= connection.settings.handshake_ms:
            connection.log.append(("warning", "handshake timeout"))
            connection.finish()


@final
class StartLogin(Login):
    """The login of connection.start-ok."""

    def __init__(self, handshake: Handshake, user: str, password: bytes, network: str) -> None:
        super().__init__(user, password, network)
        self._handshake = handshake
        #: True once the connection waits for the answer.
        self.waiting = False

    def go_on(self) -> None:
        """Act on the answer and resume parsing, if the connection waited for it."""
        if self.waiting:
            self._handshake.verified_late(self)

    def fail(self, bug: Exception) -> None:
        """Close the connection with 541 for an unexpected exception."""
        if not self.answered:
            self.answered = True
            self._handshake.broken(bug)

    def wanted(self) -> bool:
        """Return whether the connection still waits; it may have been closed since."""
        return self._handshake.is_verifying()
