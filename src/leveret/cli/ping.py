"""`leveret ping`: check whether a broker answers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from leveret.cli import exits, options
from leveret.cli.helping.commands import single
from leveret.cli.place import BrokerOptions, Config, DataDir
from leveret.cli.printing import output

if TYPE_CHECKING:
    from leveret.client.uri import Parameters

#: The longest timeout.
SECONDS_MAX: Final = 86_400.0

#: The start of the frame that answers a protocol header: connection.start on channel 0.
_KIND_AND_CHANNEL: Final = b"\x01\x00\x00"
_CONNECTION_START: Final = b"\x00\x0a\x00\x0a"

#: The request to a broker's management socket, and the beginning of a successful answer.
_REQUEST: Final = b"GET /api/whoami HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_GOOD_ANSWER: Final = b"HTTP/1.1 200 "


def ping(
    timeout: Annotated[
        float,
        typer.Option("--timeout", "-t", metavar="SECONDS", help="The time limit for the answer."),
    ] = 10.0,
    uri: options.Uri = options.DEFAULT_URI,
    data_dir: DataDir = None,
    config: Config = None,
) -> int:
    """Check whether a broker answers, without logging in.

    If the data directory of a broker on this machine is known, the check uses its management
    socket, which also answers when clients have taken all connections; otherwise it uses AMQP.
    It prints the time until the answer, and ends with 69 without one.
    """
    if not 0 < timeout <= SECONDS_MAX:
        text = f"--timeout {timeout:g}: more than 0 and at most {SECONDS_MAX:g} seconds"
        raise exits.Failure(text, exits.USAGE)
    path = BrokerOptions(data_dir, config).find_socket()
    parameters = options.read_uri(uri)
    where = str(path or f"{parameters.host}:{parameters.port}")
    began = time.monotonic()
    try:
        if path is None:
            _ask_amqp(parameters, where, began + timeout)
        else:
            _ask_api(path, began + timeout)
    except TimeoutError:
        text = f"{where} does not answer within {timeout:g} s"
        raise exits.Failure(text, exits.UNAVAILABLE) from None
    except PermissionError as error:
        text = f"cannot connect to {where}: {error.strerror}"
        raise exits.Failure(text, exits.NO_PERMISSION) from None
    except OSError as error:
        raise exits.Failure(
            f"{where} does not answer: {exits.reason_of(error)}", exits.UNAVAILABLE
        ) from None
    output.say(f"{where} answers after {(time.monotonic() - began) * 1000:.1f} ms")
    return exits.OK


def _ask_api(path: Path, deadline: float) -> None:
    """Send a request to a management socket.  Raises: OSError; Failure if it is not a broker."""
    from leveret.management.unix_socket import connect

    with connect(path, max(deadline - time.monotonic(), 0.001)) as sock:
        sock.sendall(_REQUEST)
        answer = b""
        while len(answer) < len(_GOOD_ANSWER):
            sock.settimeout(max(deadline - time.monotonic(), 0.001))
            piece = sock.recv(4096)
            if not piece:
                raise ConnectionError("it closed the connection")
            answer += piece
    if not answer.startswith(_GOOD_ANSWER):
        raise exits.Failure(f"the server at {path} is not a broker", exits.PROTOCOL)


def _ask_amqp(parameters: Parameters, where: str, deadline: float) -> None:
    """Send an AMQP protocol header.  Raises: OSError; Failure if it is not a broker."""
    answer = _answer(parameters, deadline)
    if not (answer.startswith(_KIND_AND_CHANNEL) and answer.endswith(_CONNECTION_START)):
        raise exits.Failure(f"the server at {where} is not an AMQP 0-9-1 broker", exits.PROTOCOL)


def _answer(parameters: Parameters, deadline: float) -> bytes:
    """Return the beginning of the answer to a protocol header, up to the method's ids.

    Raises: OSError, including TimeoutError.
    """
    from leveret.cli.contexts.trust import amqp_tls
    from leveret.client.blocking.link import open_link
    from leveret.wire.frames import FRAME_HEAD_BYTES, PROTOCOL_HEADER

    link = open_link(parameters, amqp_tls(parameters), deadline)
    try:
        link.send(memoryview(PROTOCOL_HEADER))
        answer = b""
        size = FRAME_HEAD_BYTES + len(_CONNECTION_START)
        while len(answer) < size:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            link.wait(writing=False, seconds=left)
            piece = link.receive()
            if piece == b"":
                raise ConnectionError("it closed the connection")
            answer += piece or b""
        return answer[:size]
    finally:
        link.close()


def app() -> typer.Typer:
    """Return the command."""
    return single("ping", ping)
