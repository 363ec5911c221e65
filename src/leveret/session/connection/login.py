"""What happens around the judging of a login, which may take a while.

Argon2 is slow on purpose, so a login is an effect: the connection is halted (`HALT_LOGIN`) until
who judges has answered, and goes on from there.  A judge that answers at once does not halt it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

from leveret.errors import ConnectionForced, InternalError
from leveret.session.admission import network_of
from leveret.session.settings import Login
from leveret.session.states import HALT_LOGIN, START_OK_NEXT, TUNE_OK_NEXT
from leveret.wire.methods import ConnectionTune, ConnectionUpdateSecretOk

#: Why nobody looked at a password.
TOO_MANY: Final = "too many logins wait for their passwords to be verified"

if TYPE_CHECKING:
    from leveret.session.connection.connection import Connection


class ConnectionLogin(Login):
    """A login of one connection, which is in `state` while it waits."""

    def __init__(self, connection: Connection, user: str, password: bytes, state: int) -> None:
        super().__init__(user, password, network_of(connection.peer.host))
        self.connection = connection
        self.state = state
        #: True once the connection was halted to wait.
        self.waiting = False

    def go_on(self) -> None:
        """Judge, and parse on if the connection waited."""
        if not self.waiting:
            return
        connection = self.connection
        connection.halted &= ~HALT_LOGIN
        if self.wanted():
            self.judge()
            connection.wake()
            connection.run()

    def fail(self, bug: Exception) -> None:
        """End the connection for a fault of ours: nothing was changed."""
        if self.answered:
            return
        self.answered = True
        connection = self.connection
        connection.halted &= ~HALT_LOGIN
        if self.wanted():
            connection.log.append(("error", f"internal error: {bug!r}"))
            connection.close(InternalError("the broker's log says more"))

    def wanted(self) -> bool:
        """Tell whether the connection still waits; it may have been closed meanwhile."""
        return self.connection.state == self.state

    def judge(self) -> None:
        """Act on the answer."""
        raise RuntimeError("a login knows what its answer means")


def ask(connection: Connection, login: ConnectionLogin) -> None:
    """Have `login` judged; the connection goes on at once or is halted until the answer comes."""
    connection.authenticator.begin(login)
    if login.answered:
        login.judge()
    else:
        login.waiting = True
        connection.halted |= HALT_LOGIN


@final
class StartLogin(ConnectionLogin):
    """The login of connection.start-ok; `tell` says that the client wants to hear of a refusal."""

    def __init__(self, connection: Connection, user: str, password: bytes, tell: bool) -> None:
        super().__init__(connection, user, password, START_OK_NEXT)
        self.tell = tell

    def judge(self) -> None:
        """Tune the connection, or refuse it."""
        connection = self.connection
        if self.turned_away:
            why = f"login turned away: user '{self.user}' - {TOO_MANY}"
            connection.turn_away(why, ConnectionForced(f"{TOO_MANY}; try again later"), self.tell)
            return
        if not self.accepted:
            why = f"login refused: user '{self.user}' - invalid credentials"
            connection.refuse_login(f"{connection.mechanism} {why}", self.tell, self.backoff)
            return
        connection.user = self.user
        settings = connection.settings
        # Known from here on: larger frames are its own risk, but the tune decides.
        tune = ConnectionTune(
            int(settings.channels_max),
            int(settings.frame_bytes_max),
            int(settings.heartbeat_seconds),
        )
        connection.send(0, tune)
        connection.state = TUNE_OK_NEXT


def renew(connection: Connection) -> None:
    """Answer connection.update-secret (behaviour 14), whatever the new secret is.

    As in RabbitMQ for users of its own database: nobody's login expires here, so that there is
    nothing to prolong.  The secret is neither compared nor kept, and the password stays.  What the
    user may do is asked anew; a user that was deleted has no connection any more.
    """
    connection.send(0, ConnectionUpdateSecretOk())
    connection.access_changed()
