"""The login that a session asks for, and the authenticator that answers it."""

from __future__ import annotations

from abc import abstractmethod

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Login:
    """A login that is to be verified; `go_on` is called when the answer comes.

    `network` is the network of the client's address: failures are counted by it.
    """

    def __init__(self, user: str, password: bytes, network: str = "") -> None:
        self.user = user
        self.password = password
        self.network = network
        #: The protocol that it came by, as metrics name it.
        self.protocol = "amqp091"
        self.answered = False
        self.accepted = False
        #: True where the password was not verified, because too many logins wait.
        self.turned_away = False
        #: By how many times the usual delay the answer to a refusal waits.
        self.backoff = 1

    def answer(self, accepted: bool) -> None:
        """Take the answer whether the password is the user's; only the first one counts."""
        if not self.answered:
            self.answered = True
            self.accepted = accepted
            self.go_on()

    def turn_away(self) -> None:
        """Refuse the login without verifying it, because too many wait."""
        if not self.answered:
            self.turned_away = True
            self.answer(False)

    def fail(self, bug: Exception) -> None:
        """Refuse the login because of `bug`, an unexpected exception."""
        self.answer(False)

    @abstractmethod
    def go_on(self) -> None:
        """Go on with the answer."""

    def wanted(self) -> bool:
        """Return whether the session still waits for the answer."""
        return True


@mypyc_attr(allow_interpreted_subclasses=True)
class Authenticator:
    """Verifies logins, at once or later."""

    @abstractmethod
    def begin(self, login: Login) -> None:
        """Begin to verify `login`; its `answer` is called once, here or later.

        An unknown user costs as much as a known one.
        """
