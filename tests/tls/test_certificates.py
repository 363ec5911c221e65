"""The files of certificates: what is wrong with them, and new ones without a restart."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import resource
import shutil
import signal
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from leveret.client import blocking
from leveret.limits import CERTIFICATE_FILE_BYTES_MAX, SNI_CERTIFICATES_MAX
from leveret.server.opening.certificates import (
    BadCertificates,
    Certificates,
    ServerTlsFiles,
    make_context,
    read_material,
)
from leveret.testing import Broker
from support.brokers.broker_process import BrokerProcess, BrokerProcessError
from support.brokers.certificates import Certificate
from support.brokers.secure import Pki, handshake, port_of, uri_of

PASSPHRASE = b"correct horse"


def fault(files: ServerTlsFiles) -> str:
    """Return what is wrong with files."""
    with pytest.raises(BadCertificates) as error:
        make_context(files, read_material(files))
    return str(error.value)


def encrypted(pki: Pki, folder: Path) -> Path:
    """Return the broker's key, encrypted."""
    made = folder / "encrypted.key"
    secret = f"pass:{PASSPHRASE.decode()}"
    command = ["openssl", "pkcs8", "-topk8", "-in", str(pki.broker.key), "-passout", secret]
    subprocess.run([*command, "-out", str(made)], check=True, capture_output=True)
    return made


def files_of(pki: Pki, **more: object) -> ServerTlsFiles:
    """Return the broker's files with some others."""
    values: dict[str, object] = {"certificate": pki.broker.certificate, "key": pki.broker.key}
    return ServerTlsFiles(**(values | more))  # type: ignore[arg-type]


def test_a_file_that_is_not_there_is_named(pki: Pki, tmp_path: Path) -> None:
    text = fault(files_of(pki, certificate=tmp_path / "none.pem"))
    assert text.startswith(f"tls_certificate: cannot read {tmp_path}/none.pem: No such file")
    assert "give the path of a file" in text
    assert fault(files_of(pki, key=tmp_path)).startswith(f"tls_key: cannot read {tmp_path}")
    assert fault(files_of(pki, ca=tmp_path / "ca")).startswith("tls_ca: cannot read")
    assert fault(files_of(pki, sni_dir=tmp_path / "no")).startswith("tls_sni_dir: cannot read")


def test_what_is_no_pem_is_named(pki: Pki, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"\x30\x82binary")
    assert "tls_certificate: " in fault(files_of(pki, certificate=other))
    assert "openssl x509 -inform der" in fault(files_of(pki, certificate=other))
    assert fault(files_of(pki, key=other)).startswith(f"tls_key: {other} contains no private key")
    assert fault(files_of(pki, ca=other)).startswith(f"tls_ca: {other} contains no certificate")
    assert fault(files_of(pki, chain=other)).startswith(
        f"tls_chain: {other} contains no certificate"
    )
    other.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert "cannot be used" in fault(files_of(pki, certificate=other))
    assert fault(files_of(pki, ca=other)).startswith(f"tls_ca: {other} is damaged")


def test_a_key_without_a_file_is_asked_for(pki: Pki) -> None:
    assert "set tls_key to the key's file" in fault(files_of(pki, key=None))


def test_the_key_of_another_certificate_is_refused(pki: Pki, tmp_path: Path) -> None:
    other = Pki(tmp_path).broker
    text = fault(files_of(pki, key=other.key))
    assert text.startswith(f"tls_key: {other.key} is not the key of the certificate")


def test_an_encrypted_key_needs_its_passphrase(pki: Pki, tmp_path: Path) -> None:
    key = encrypted(pki, tmp_path)
    assert "is an encrypted key; set its passphrase" in fault(files_of(pki, key=key))
    assert "cannot be decrypted" in fault(files_of(pki, key=key, passphrase=b"wrong"))
    right = files_of(pki, key=key, passphrase=PASSPHRASE)
    make_context(right, read_material(right))
    file = tmp_path / "passphrase"
    file.write_bytes(PASSPHRASE + b"\r\nnot this line\n")
    right = files_of(pki, key=key, passphrase_file=file)
    make_context(right, read_material(right))


def test_clients_cannot_be_verified_without_authorities(pki: Pki) -> None:
    text = fault(files_of(pki, verify="required"))
    assert text.startswith("tls_verify: required needs the certificates")


def test_a_file_is_read_up_to_its_limit(pki: Pki, tmp_path: Path) -> None:
    padded = tmp_path / "padded.pem"
    certificate = pki.broker.certificate.read_bytes()
    padded.write_bytes(certificate + b"\n" * (CERTIFICATE_FILE_BYTES_MAX - len(certificate)))
    assert read_material(files_of(pki, certificate=padded)).pair.certificate
    with padded.open("ab") as file:
        file.write(b"\n")
    assert "is larger than 1048576 bytes" in fault(files_of(pki, certificate=padded))


def test_so_many_names_are_taken(pki: Pki, tmp_path: Path) -> None:
    pair = pki.broker.certificate.read_bytes() + pki.broker.key.read_bytes()
    for number in range(SNI_CERTIFICATES_MAX):
        (tmp_path / f"n{number}.example.pem").write_bytes(pair)
    assert len(read_material(files_of(pki, sni_dir=tmp_path)).by_name) == SNI_CERTIFICATES_MAX
    (tmp_path / "one-more.pem").write_bytes(pair)
    assert "contains more than 1024 files" in fault(files_of(pki, sni_dir=tmp_path))


def test_the_certificate_is_the_one_of_the_name(pki: Pki, tmp_path: Path) -> None:
    for name, subject in (("a.example", "DNS:a.example"), ("*.b.example", "DNS:*.b.example")):
        made = pki.authority.sign(name.replace("*", "any"), subject)
        pair = made.certificate.read_bytes() + made.key.read_bytes()
        (tmp_path / f"{name}.pem").write_bytes(pair)
    with Broker(**pki.settings, tls_sni_dir=tmp_path) as broker:
        for name, shown in (
            ("localhost", "broker"),
            ("a.example", "a.example"),
            ("A.Example", "a.example"),
            ("x.b.example", "any.b.example"),
        ):
            plain = handshake(broker, pki.trusting(), name)
            with plain as sock:
                certificate = sock.getpeercert()
                assert certificate is not None
                assert certificate["subject"] == ((("commonName", shown),),)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"tls_key": "/tmp/key"}, "tls_key: TLS needs a certificate"),  # noqa: S108
        ({"tls_port": "5671"}, "tls_port: TLS needs a certificate"),
        ({"tls_verify": "required"}, "tls_verify: TLS needs a server certificate"),
        ({"amqp": "false"}, "amqp: without TLS the broker would not listen for AMQP"),
        ({"tls_certificate": "/nowhere"}, "tls_certificate: cannot read /nowhere"),
    ],
)
def test_a_wrong_setting_ends_the_start(
    tmp_path: Path, settings: dict[str, str], text: str
) -> None:
    process = BrokerProcess(tmp_path / "data", settings=settings)
    with pytest.raises(BrokerProcessError) as error:
        process.start()
    assert text in str(error.value)
    assert "Traceback" not in str(error.value)


# -- new certificates ------------------------------------------------------------------------------


class Replaced:
    """Files of a certificate that can be replaced."""

    def __init__(self, pki: Pki, folder: Path) -> None:
        self.folder = folder
        self.files = ServerTlsFiles(folder / "shown.pem", folder / "shown.key")
        self.put(pki.broker)

    def put(self, made: Certificate) -> None:
        """Replace both."""
        shutil.copy(made.certificate, self.files.certificate)
        assert self.files.key is not None
        shutil.copy(made.key, self.files.key)


@contextmanager
def one_descriptor_left() -> Iterator[None]:
    """Let this process open one file at a time."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(held[0], 255) + 1, limits[1]))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        os.close(held.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for one in held:
            os.close(one)


def test_only_a_pair_that_fits_is_taken(pki: Pki, tmp_path: Path) -> None:
    said: list[tuple[str, str]] = []
    place = Replaced(pki, tmp_path)

    async def run() -> list[bool]:
        certificates = Certificates(place.files, lambda *line: said.append(line))
        first = certificates.context()
        other = pki.authority.sign("newer", "DNS:localhost")
        results = [await certificates.reload()]
        shutil.copy(other.certificate, place.files.certificate)
        results += [await certificates.reload(), await certificates.reload()]
        assert certificates.context() is first
        place.put(other)
        results.append(await certificates.reload())
        assert certificates.context() is not first
        place.files.certificate.unlink()
        results.append(await certificates.reload())
        return results

    assert asyncio.run(run()) == [False, False, False, True, False]
    assert [level for level, _ in said] == ["error", "info", "error"]
    assert "is not the key of the certificate" in said[0][1]
    assert "cannot read" in said[2][1]


def test_certificates_wait_where_there_are_no_descriptors(pki: Pki, tmp_path: Path) -> None:
    said: list[tuple[str, str]] = []
    place = Replaced(pki, tmp_path)

    async def run() -> list[bool]:
        certificates = Certificates(place.files, lambda *line: said.append(line))
        place.put(pki.authority.sign("later", "DNS:localhost"))
        # A first look has the executor's thread made, which takes what is not counted here.
        await asyncio.get_running_loop().run_in_executor(None, int)
        with one_descriptor_left():
            # One file is read at a time, but OpenSSL needs two.
            found = [await certificates.reload(), await certificates.reload()]
        return [*found, await certificates.reload()]

    assert asyncio.run(run()) == [False, False, True]
    assert [level for level, _ in said] == ["error", "info"]
    assert "not replaced: [Errno 24]" in said[0][1]


def test_a_signal_replaces_certificates_and_keeps_connections(pki: Pki, tmp_path: Path) -> None:
    place = Replaced(pki, tmp_path)
    process = pki.broker_process(
        tmp_path / "data",
        tls_certificate=str(place.files.certificate),
        tls_key=str(place.files.key),
    )
    with process:
        port = port_of(process)
        with blocking.connect(uri_of(port), ssl=pki.trusting(), recover=False) as connection:
            channel = connection.channel()
            queue = channel.queue_declare(exclusive=True).queue
            channel.confirm_select()
            for number in range(5):
                newer = pki.authority.sign(f"newer-{number}", "DNS:localhost")
                place.put(newer)
                process_signal(process)
                process.expect_line("certificates replaced")
                channel.publish(bytes(100_000), routing_key=queue)
                message = channel.get(queue, no_ack=True)
                assert message is not None
                if number == 0:
                    shown = ssl.get_server_certificate(("127.0.0.1", port), timeout=60)
                    assert shown.strip() in newer.certificate.read_text()
        assert process.terminate() == 0


def process_signal(process: BrokerProcess) -> None:
    """Send SIGHUP."""
    os.kill(process.pid, signal.SIGHUP)


def test_a_signal_without_certificates_ends_nothing(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as process:
        process_signal(process)
        with blocking.connect(process.uri) as connection:
            connection.channel()
        assert process.terminate() == 0
        assert not re.search("Traceback", process.output)
