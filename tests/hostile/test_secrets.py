"""Secrets that a broker is given come out of it nowhere: each is planted, and looked for.

Passwords (by a setting, over HTTP, by a command, in definitions, right and wrong ones), the
passphrase of a key and the token of a session are planted.  They are looked for in the log, in each
file of the data directory, in the answer of every GET route, in the metrics, in what the commands
print, and in the process's title.  A user's name is looked for as well: what finds that would find
the secrets.
"""

from __future__ import annotations

import base64
import http.client
import json
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from leveret.client.blocking import connect
from leveret.errors import AccessRefusedHard
from leveret.management.api import users_routes
from support.brokers.broker_process import BrokerProcess
from support.brokers.secure import Pki, port_of, read_all
from support.commands.command_process import run_leveret
from support.hostile.hostile_requests import good, key_of
from support.http.http_streams import basic
from support.wire import raw

pytestmark = pytest.mark.commands

#: The secrets by how they are planted.  A name of a test in them is not one.
SECRETS: Final = {
    "the setting default_pass": "canaryOne4711",
    "the passphrase of the key": "canaryTwo4712",
    "a password by PUT": "canaryThree4713",
    "a password by a command": "canaryFour4714",
    "a password in definitions": "canaryFive4715",
    "a wrong password over AMQP": "canarySix4716",
    "a wrong password over HTTP": "canarySeven4717",
    "a password to be hashed": "canaryEight4718",
    "a password in a form": "canaryNine4719",
    "a password in a malformed request": "canaryTen4720",
    "a password in malformed PLAIN": "canaryEleven4721",
}

#: The users of those that are right, and what must be found.
USER: Final = "secretary"


@dataclass
class Ground:
    """A broker with all that was planted, and what it left behind, by where that was found."""

    broker: BrokerProcess
    secrets: dict[str, list[bytes]] = field(default_factory=dict)
    left: dict[str, bytes] = field(default_factory=dict)

    def found(self) -> list[str]:
        """Each secret that is somewhere."""
        return [
            f"{what} in {where}"
            for where, data in self.left.items()
            for what, forms in self.secrets.items()
            if any(form in data for form in forms)
        ]


def forms_of(secret: str) -> list[bytes]:
    """A secret as it may stand somewhere: as it is, in hex, and in base 64 at each offset."""
    raw = secret.encode()
    found = [raw, raw.hex().encode(), raw.hex().upper().encode(), raw[::-1]]
    for before in range(3):
        # Without the characters that also hold bits of what stands before and behind.
        text = base64.b64encode(bytes(before) + raw)
        found.append(text[4 if before else 0 : -4])
    return found


class Asking:
    """A user of the API over HTTPS."""

    def __init__(self, pki: Pki, broker: BrokerProcess) -> None:
        self._http = http.client.HTTPSConnection(
            "localhost", port_of(broker, "https"), context=pki.trusting(), timeout=120
        )

    def __call__(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        login = basic("root", SECRETS["the setting default_pass"])
        self._http.request(method, path, body, login if headers is None else headers)
        return self._http.getresponse()

    def read(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Return status, and head and body of an answer."""
        response = self(method, path, body)
        return response.status, str(response.headers).encode() + response.read()

    def close(self) -> None:
        """Go away."""
        self._http.close()


def malformed(secret: str) -> Iterator[bytes]:
    """Yield requests that are none in HTTP, each with a secret where the mistake is."""
    path, end = b"/api/users/x HTTP/1.1\r\nHost: x\r\n", b"\r\n\r\n"
    credentials = base64.b64encode(f"root:{secret}".encode())
    yield b"GET /api/whoami HTTP/1.1\nHost: x\nAuthorization: Basic " + credentials + b"\n\n"
    yield b"GET " + path + b"Authorization: Basic\r\n " + credentials + end
    yield b"GET " + path + b"Authorization : Basic " + credentials + end
    yield b"GET " + path + b"Authorization: Basic " + credentials + b"\x01" + end
    yield b"GET " + path + b"Authorization: " + credentials + b"A" * 10_000 + end
    yield b"GET " + path + b"Content-Length: " + credentials + end
    yield b"PUT " + path + b"Transfer-Encoding: chunked" + end + credentials + end
    yield credentials + b" " + path + end
    yield b"GET /api/whoami HTTP/" + secret.encode() + end
    for target in ("http://root:{}@[::1/api", "http://root:{}@h:port/api", "/api/{} more"):
        yield f"GET {target.format(secret)} HTTP/1.1\r\nHost: x".encode() + end


def plant_malformed(broker: BrokerProcess) -> None:
    """Send what the libraries that read it refuse: their errors quote it."""
    for request in malformed(SECRETS["a password in a malformed request"]):
        with socket.create_connection(("127.0.0.1", port_of(broker, "http")), 60) as stranger:
            stranger.sendall(request)
            assert b" 400 " in read_all(stranger)
    secret = SECRETS["a password in malformed PLAIN"].encode()
    for response in (b"\0root\0%b\xff" % secret, b"\0root\0%b\0" % secret, b"root\0" + secret):
        with raw.dial(broker.uri) as connection:
            connection.start(raw.Login(response=response))
            assert connection.expect(0, "connection.close").code in (403, 502)


def plant(ask: Asking, broker: BrokerProcess, folder: Path) -> str:
    """Hand the broker all secrets, each in its way; return the token of a session."""
    put = json.dumps({"password": SECRETS["a password by PUT"], "tags": "administrator"})
    assert ask.read("PUT", f"/api/users/{USER}", put.encode())[0] == 201
    settings = {"LEVERET_DATA_DIR": str(broker.data_dir)}
    new = SECRETS["a password by a command"].encode() + b"\n"
    assert run_leveret("ctl", "add_user", "other", stdin=new, settings=settings).returncode == 0
    told = {"users": [{"name": "told", "password": SECRETS["a password in definitions"]}]}
    (folder / "definitions.json").write_text(json.dumps(told))
    done = run_leveret("ctl", "import_definitions", folder / "definitions.json", settings=settings)
    assert done.returncode == 0, done.stderr
    for body in (json.dumps(told).encode(), b'{"users": [{"name": "told", "password": "canaryFive'):
        ask.read("POST", "/api/definitions", body)
    wrong = SECRETS["a wrong password over AMQP"]
    with pytest.raises(AccessRefusedHard):
        connect(broker.uri_of("root", wrong)).close()
    right = SECRETS["the setting default_pass"]
    connect(broker.uri_of("root", right)).close()
    login = basic("root", SECRETS["a wrong password over HTTP"])
    for path in ("/api/overview", "/api/login", "/nowhere"):
        assert ask("GET", path, headers=login).read()
    hashed = f"/api/auth/hash_password/{SECRETS['a password to be hashed']}"
    plant_malformed(broker)
    for path in (hashed, f"{hashed}/more", f"{hashed}%ff"):
        ask("GET", path).read()
    form = {"Content-Type": "application/x-www-form-urlencoded", "X-Requested-With": "a page"}
    wrong = f"username=root&password={SECRETS['a password in a form']}"
    assert ask("POST", "/api/login", wrong.encode(), form).read()
    response = ask("POST", "/api/login", f"username=root&password={right}".encode(), form)
    said = response.read()
    found = re.search(r"=([^;]{20,})", response.headers.get("Set-Cookie", ""))
    assert found is not None, said
    return found[1]


def furnish(ask: Asking) -> None:
    """Make what the paths of the routes name, by their own good requests."""
    for vhost in ("h", "%2F"):
        ask.read("PUT", f"/api/vhosts/{vhost}")
        every = b'{"configure": ".*", "write": ".*", "read": ".*"}'
        ask.read("PUT", f"/api/permissions/{vhost}/root", every)
    ask.read("PUT", "/api/users/u", b'{"password": "u", "tags": ""}')
    ask.read("PUT", "/api/queues/h/q")
    ask.read("PUT", "/api/exchanges/h/e", b'{"type": "topic"}')
    ask.read("PUT", "/api/queues/h/s", b'{"arguments": {"x-queue-type": "stream"}}')
    for method in ("PUT", "POST"):
        for route in users_routes():
            if route.method == method and "/login" not in route.path:
                request = good(route)
                ask.read(method, request.path.decode(), request.body)


def look(ask: Asking) -> Iterator[tuple[str, bytes]]:
    """Yield the answer of every route that only looks."""
    backup = json.loads(ask("GET", "/api/backups").read())[0]["id"]
    for route in users_routes():
        if route.method == "GET" and route.path != "/api/auth/hash_password/{password}":
            path = good(route).path.decode().replace("/backups/b", f"/backups/{backup}")
            status, answer = ask.read("GET", path)
            yield f"GET {route.path}: {status}", answer


def files_below(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the contents of all files."""
    for path in folder.rglob("*"):
        if path.is_file():
            yield str(path.relative_to(folder)), path.read_bytes()


def printed(broker: BrokerProcess) -> Iterator[tuple[str, bytes]]:
    """Yield what commands print of the broker."""
    settings = {"LEVERET_DATA_DIR": str(broker.data_dir)}
    for words in (
        ("status",),
        ("status", "--format", "json"),
        ("ctl", "list_users", "--format", "json"),
        ("ctl", "export_definitions"),
        ("rabbitmqctl", "status"),
        ("rabbitmqctl", "environment"),
    ):
        done = run_leveret(*words, settings=settings)
        yield f"leveret {' '.join(words)}: {done.returncode}", done.stdout + done.stderr


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ground]:
    """A broker that was handed all of it, and all that it left behind."""
    folder = tmp_path_factory.mktemp("secrets")
    pki = Pki(folder)
    key, passphrase = folder / "encrypted.key", SECRETS["the passphrase of the key"]
    made = ["openssl", "pkcs8", "-topk8", "-in", str(pki.broker.key), "-out", str(key)]
    subprocess.run([*made, "-passout", f"pass:{passphrase}"], check=True, capture_output=True)
    process = pki.broker_process(
        folder / "data",
        tls_key=str(key),
        tls_key_passphrase=passphrase,
        default_user="root",
        default_pass=SECRETS["the setting default_pass"],
        log_level="debug",
        event_sample_every="1",
        login_failure_delay_ms="0",
        journal_bytes_max="65536",
        ballast_bytes="0",
    )
    process.fresh = True
    with process as broker, closing(Asking(pki, broker)) as ask:
        token = plant(ask, broker, folder)
        furnish(ask)
        ground = Ground(broker, {what: forms_of(secret) for what, secret in SECRETS.items()})
        ground.secrets["the token of a session"] = [token.encode()]
        ground.left.update(look(ask))
        ground.left.update(printed(broker))
        port = re.search(r"//([^/]+)/metrics", broker.expect_line("listening for Prometheus"))
        assert port is not None
        metrics = http.client.HTTPConnection(port[1], timeout=120)
        metrics.request("GET", "/metrics/per-object")
        ground.left["the metrics"] = metrics.getresponse().read()
        metrics.close()
        for name in ("cmdline", "comm"):
            ground.left[f"/proc/{name}"] = Path(f"/proc/{broker.pid}/{name}").read_bytes()
        ground.left.update(files_below(broker.data_dir))
        assert broker.terminate() == 0
        ground.left.update(
            (f"{name}, stopped", data) for name, data in files_below(folder / "data")
        )
        ground.left["the log"] = broker.output.encode()
        yield ground


def test_no_secret_comes_out(ground: Ground) -> None:
    assert ground.found() == []


def test_what_looks_for_them_would_find_them(ground: Ground) -> None:
    name = USER.encode()
    where = {place.partition(":")[0] for place, data in ground.left.items() if name in data}
    assert where >= {
        "the log",
        "GET /api/users",
        "GET /api/definitions",
        "GET /api/log/stream",
        "leveret ctl list_users --format json",
        "leveret ctl export_definitions",
    }
    assert [place for place in where if place.startswith("journal/")]
    ground.secrets["a name that is no secret"] = forms_of(USER)
    assert len(ground.found()) >= len(where)
    del ground.secrets["a name that is no secret"]


def test_every_route_was_looked_at(ground: Ground) -> None:
    """Most of them have something to tell: what they name is there."""
    routes = [" ".join(key_of(route)) for route in users_routes() if route.method == "GET"]
    told = {place.partition(":")[0]: place[-3:] for place in ground.left if place.startswith("GET")}
    assert told.keys() == {*routes} - {"GET /api/auth/hash_password/{password}"}
    assert [route for route, status in told.items() if status == "500"] == []
    nothing = [route for route, status in told.items() if status != "200"]
    assert len(nothing) < len(told) / 5, nothing


@pytest.mark.parametrize("before", range(3))
def test_base_64_is_found_wherever_it_begins(before: int) -> None:
    text = base64.b64encode(b"user:"[:before] + b"canaryOne4711" + b"behind")
    assert any(form in text for form in forms_of("canaryOne4711"))
