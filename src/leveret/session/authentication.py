"""A login to be verified, and the interface of authenticators."""

from __future__ import annotations

from abc import abstractmethod

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Login:
    """A login to be verified; `go_on` is called once it is answered.

    `network` is the network of the client's address, by which failures are counted.
    """

    def __init__(self, user: str, password: bytes, network: str = "") -> None:
        self.user = user
        self.password = password
        self.network = network
        #: The protocol of the client, as metrics name it.
        self.protocol = "amqp091"
        self.answered = False
        self.accepted = False
        #: True if the password was not verified because too many logins were waiting.
        self.turned_away = False
        #: The factor by which the delay of a refusal is longer than usual.
        self.backoff = 1

    def answer(self, accepted: bool) -> None:
        """Accept or refuse the login; only the first answer counts."""
        if not self.answered:
            self.answered = True
            self.accepted = accepted
            self.go_on()

    def turn_away(self) -> None:
        """Refuse the login without verifying it, because too many logins are waiting."""
        if not self.answered:
            self.turned_away = True
            self.answer(False)

    def fail(self, bug: Exception) -> None:
        """Refuse the login because of `bug`, an unexpected exception."""
        self.answer(False)

    @abstractmethod
    def go_on(self) -> None:
        """Continue after the answer."""

    def wanted(self) -> bool:
        """Return whether the session still waits for the answer."""
        return True


@mypyc_attr(allow_interpreted_subclasses=True)
class Authenticator:
    """The interface of authenticators, which verify logins immediately or later."""

    @abstractmethod
    def begin(self, login: Login) -> None:
        """Begin to verify `login`; call its `answer` once, immediately or later.

        Refusing an unknown user takes as long as refusing a known one.
        """
