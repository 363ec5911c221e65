"""The opening of a connection: start, login, tune, open (AMQP 0-9-1 section 2.2.4).

Source for what is refused and how: behaviours 1 to 6.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker.node.access import Access
from leveret.errors import AmqpError, CommandInvalid, NotAllowed, SyntaxFault
from leveret.limits import FRAME_BYTES_MIN
from leveret.session.connection.login import StartLogin, ask
from leveret.session.states import OPEN, OPEN_NEXT, START_OK_NEXT, TUNE_OK_NEXT
from leveret.wire.methods import (
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTuneOk,
)
from leveret.wire.tables import read_entries

if TYPE_CHECKING:
    from leveret.session.connection.connection import Connection
    from leveret.wire.method import Method

_MECHANISMS: Final = b"PLAIN AMQPLAIN"


def refused(mechanism: str) -> str:
    """Return the one text for every refused login: it tells nothing of the reason."""
    return (
        f"ACCESS_REFUSED - Login was refused using authentication mechanism {mechanism}. "
        "For details see the broker logfile."
    )


def start(connection: Connection) -> None:
    """Answer the protocol header with connection.start."""
    connection.send(
        0,
        ConnectionStart(0, 9, connection.settings.server_properties(), _MECHANISMS, b"en_US"),
    )
    connection.state = START_OK_NEXT


def step(connection: Connection, method: Method) -> None:
    """Take the next method of the handshake.

    Raises: CommandInvalid (503) out of order; SyntaxFault (502), NotAllowed (530).
    """
    if connection.state == START_OK_NEXT and isinstance(method, ConnectionStartOk):
        _start_ok(connection, method)
    elif connection.state == TUNE_OK_NEXT and isinstance(method, ConnectionTuneOk):
        _tune_ok(connection, method)
    elif connection.state == OPEN_NEXT and isinstance(method, ConnectionOpen):
        _open(connection, method)
    else:
        raise CommandInvalid(f"{method.NAME} before the connection is open")


def _start_ok(connection: Connection, method: ConnectionStartOk) -> None:
    properties = method.client_properties
    connection.client_properties = properties
    capabilities = properties.get("capabilities")
    tell = False
    if isinstance(capabilities, dict):
        connection.cancel_notify = capabilities.get("consumer_cancel_notify") is True
        connection.known_notify = capabilities.get("leveret.already_taken") is True
        connection.blocked_notify = capabilities.get("connection.blocked") is True
        tell = capabilities.get("authentication_failure_close") is True
    user, password = _credentials(method)
    settings = connection.settings
    connection.mechanism = method.mechanism
    if user in settings.loopback_users and not connection.peer.loopback:
        why = f"{method.mechanism} login refused: user '{user}' can only connect via localhost"
        connection.refuse_login(why, tell)
        return
    ask(connection, StartLogin(connection, user, password, tell))


def _credentials(method: ConnectionStartOk) -> tuple[str, bytes]:
    """Return user and password.

    Raises: CommandInvalid (503) for a mechanism that is not offered; SyntaxFault (502).
    """
    response = method.response
    if method.mechanism == "PLAIN":
        fields = response.split(b"\x00")
        if len(fields) != 3:
            raise SyntaxFault("a PLAIN response is authzid, user and password, each after a zero")
        if fields[0]:
            raise SyntaxFault("a PLAIN response asks for another identity than its user's")
        return _name(fields[1]), fields[2]
    if method.mechanism == "AMQPLAIN":
        try:
            table = read_entries(response, 0, len(response))
        except AmqpError:
            raise SyntaxFault("an AMQPLAIN response is a table") from None
        login = table.get("LOGIN")
        password = table.get("PASSWORD")
        if isinstance(password, str):
            password = password.encode("utf-8")
        if not isinstance(login, str) or not isinstance(password, bytes):
            raise SyntaxFault("an AMQPLAIN response holds LOGIN and PASSWORD")
        return login, password
    raise CommandInvalid(f"unknown authentication mechanism '{method.mechanism}'")


def _name(raw: bytes) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        raise SyntaxFault("a user name is UTF-8") from None


def _tune_ok(connection: Connection, method: ConnectionTuneOk) -> None:
    """Take the client's part of the tuning (behaviour 5); 0 asks for no limit."""
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
            f"negotiated frame_max = {frame_max} is higher than the maximum allowed value ({most})"
        )
    channels = method.channel_max
    allowed = int(settings.channels_max)
    if allowed != 0 and (channels == 0 or channels > allowed):
        raise NotAllowed(
            f"negotiated channel_max = {channels} is higher than the maximum allowed value "
            f"({allowed})"
        )
    connection.tuned(frame_max, channels, method.heartbeat)
    connection.state = OPEN_NEXT


def _open(connection: Connection, method: ConnectionOpen) -> None:
    """Enter a vhost.

    Raises: NotAllowed (530) where there is none of that name, or no way in; see `Broker.enter`.
    """
    name = method.virtual_host
    if name not in connection.broker.vhosts:
        # The client may not be told; who operates the broker is.
        connection.log.append(("warning", f"user '{connection.user}': no vhost '{name}'"))
    connection.vhost = connection.broker.enter(connection, name)
    connection.access = Access(connection.broker.users, connection.user, name)
    connection.as_owner = connection.access.owner
    connection.state = OPEN
    connection.send(0, ConnectionOpenOk())
    text = f"user '{connection.user}' authenticated and granted access to vhost "
    connection.log.append(("info", f"{text}'{name}'"))
