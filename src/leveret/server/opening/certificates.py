"""Reads and checks the broker's certificates, and replaces them while the broker runs.

All files are read before any of them is used, and the same content is checked and used.  So a key
that does not match its certificate, because only one of the files has been replaced so far, is
never used.  Keys are stored in memory only.

Invariants: error messages name the setting, the cause and the remedy, and contain no passphrase;
contexts do not change once created, so a connection keeps its first context.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from leveret.limits import CERTIFICATE_FILE_BYTES_MAX, SNI_CERTIFICATES_MAX
from leveret.server.opening.opening import Say

_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_KEY: Final = b"PRIVATE KEY-----"
_ENCRYPTED: Final = (b"BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED")

#: The ciphers of TLS 1.2: ephemeral keys and authenticated encryption (AEAD).
_CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"

#: The suffix of the files of `tls_sni_dir`.
_SNI_SUFFIX: Final = ".pem"


class BadCertificates(Exception):
    """Certificates or keys cannot be used; the text names the setting, the cause and the remedy."""


@dataclass(frozen=True)
class ServerTlsFiles:
    """The files of certificates and keys, and the requirements on clients (settings `tls_…`)."""

    certificate: Path
    key: Path | None = None
    passphrase: bytes = b""
    passphrase_file: Path | None = None
    chain: Path | None = None
    ca: Path | None = None
    verify: Literal["none", "optional", "required"] = "none"
    version_min: Literal["1.2", "1.3"] = "1.2"
    sni_dir: Path | None = None


@dataclass(frozen=True)
class _Pair:
    """The contents of a certificate and its key, and their settings and paths for messages."""

    certificate: bytes
    key: bytes
    certificate_from: str
    key_from: str


@dataclass(frozen=True)
class Material:
    """The contents of all files."""

    pair: _Pair
    passphrase: bytes
    ca: bytes
    #: The certificates and keys by the server name that a client requests.
    by_name: Mapping[str, _Pair]

    def digest(self) -> bytes:
        """Return a digest of all contents."""
        made = hashlib.sha256()
        pairs = [self.pair, *(pair for _, pair in sorted(self.by_name.items()))]
        parts = [part for pair in pairs for part in (pair.certificate, pair.key)]
        for part in (*parts, self.passphrase, self.ca, *(n.encode() for n in sorted(self.by_name))):
            made.update(len(part).to_bytes(8, "big") + part)
        return made.digest()


def read_material(files: ServerTlsFiles) -> Material:
    """Return the contents of the files.  Raises: BadCertificates."""
    certificate = _read(files.certificate, "tls_certificate")
    _check_certificate(certificate, f"tls_certificate: {files.certificate}")
    key, key_from = certificate, f"tls_certificate: {files.certificate}"
    if files.key is not None:
        key, key_from = _read(files.key, "tls_key"), f"tls_key: {files.key}"
    elif _KEY not in key:
        raise BadCertificates(
            f"tls_certificate: {files.certificate} contains no private key; set tls_key to the "
            "key's file"
        )
    if files.chain is not None:
        chain = _read(files.chain, "tls_chain")
        _check_certificate(chain, f"tls_chain: {files.chain}")
        certificate += b"\n" + chain
    passphrase = files.passphrase
    if files.passphrase_file is not None:
        text = _read(files.passphrase_file, "tls_key_passphrase_file")
        passphrase = text.partition(b"\n")[0].rstrip(b"\r")
    ca = b""
    if files.ca is not None:
        ca = _read(files.ca, "tls_ca")
        _check_certificate(ca, f"tls_ca: {files.ca}")
    elif files.verify != "none":
        raise BadCertificates(
            f"tls_verify: {files.verify} needs the certificates of the authorities that sign the "
            "clients' certificates; set tls_ca to their file"
        )
    pair = _Pair(certificate, key, f"tls_certificate: {files.certificate}", key_from)
    return Material(pair, passphrase, ca, _read_names(files.sni_dir))


def _read_names(folder: Path | None) -> dict[str, _Pair]:
    """Return the certificates and keys in `tls_sni_dir`, by server name."""
    if folder is None:
        return {}
    found: dict[str, _Pair] = {}
    try:
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(_SNI_SUFFIX))
    except OSError as error:
        raise BadCertificates(
            f"tls_sni_dir: cannot read {folder}: {error.strerror}; it must be a directory of files "
            "such as broker.example.org.pem, each with a certificate and its key"
        ) from None
    if len(paths) > SNI_CERTIFICATES_MAX:
        raise BadCertificates(
            f"tls_sni_dir: {folder} contains more than {SNI_CERTIFICATES_MAX} files; remove those "
            "of unused names"
        )
    for path in paths:
        data = _read(path, "tls_sni_dir")
        where = f"tls_sni_dir: {path}"
        _check_certificate(data, where)
        found[path.name.removesuffix(_SNI_SUFFIX).lower()] = _Pair(data, data, where, where)
    return found


def _read(path: Path, setting: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(CERTIFICATE_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise BadCertificates(
            f"{setting}: cannot read {path}: {error.strerror}; give the path of a file that the "
            "broker's user can read"
        ) from None
    if len(data) > CERTIFICATE_FILE_BYTES_MAX:
        raise BadCertificates(
            f"{setting}: {path} is larger than {CERTIFICATE_FILE_BYTES_MAX} bytes; give a file in "
            "PEM format"
        )
    return data


def _check_certificate(data: bytes, where: str) -> None:
    if _CERTIFICATE not in data:
        raise BadCertificates(
            f"{where} contains no certificate in PEM format (a block that begins with "
            f"{_CERTIFICATE.decode()}); convert it, for example with openssl x509 -inform der"
        )


# -- contexts --------------------------------------------------------------------------------------


def make_context(files: ServerTlsFiles, material: Material) -> ssl.SSLContext:
    """Return the TLS context for new connections.  Raises: BadCertificates."""
    context = _context_of(files, material, material.pair)
    if material.by_name:
        others = {
            name: _context_of(files, material, pair) for name, pair in material.by_name.items()
        }

        def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            wanted = (name or "").lower()
            found = others.get(wanted) or others.get(f"*.{wanted.partition('.')[2]}")
            if found is not None:
                connection.context = found

        context.sni_callback = choose
    return context


def _context_of(files: ServerTlsFiles, material: Material, pair: _Pair) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    versions = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
    context.minimum_version = versions[files.version_min]
    context.set_ciphers(_CIPHERS)
    # Renegotiation and compression would let a client cause more work than its input is worth.
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_SINGLE_ECDH_USE
    context.num_tickets = 1
    verify = {
        "none": ssl.CERT_NONE,
        "optional": ssl.CERT_OPTIONAL,
        "required": ssl.CERT_REQUIRED,
    }
    if material.ca:
        try:
            context.load_verify_locations(cadata=material.ca.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError) as error:
            reason = getattr(error, "reason", None) or str(error)
            raise BadCertificates(
                f"tls_ca: {files.ca} is damaged ({reason}); give the authorities' certificates in "
                "PEM format"
            ) from None
    context.verify_mode = verify[files.verify]
    _load_pair(context, pair, material.passphrase)
    return context


def _load_pair(context: ssl.SSLContext, pair: _Pair, passphrase: bytes) -> None:
    """Load a certificate and its key into a context.  Raises: BadCertificates."""
    if _KEY not in pair.key:
        raise BadCertificates(
            f"{pair.key_from} contains no private key in PEM format; give the file of the key that "
            "belongs to the certificate"
        )
    encrypted = any(mark in pair.key for mark in _ENCRYPTED)
    if encrypted and not passphrase:
        raise BadCertificates(
            f"{pair.key_from} is an encrypted key; set its passphrase with "
            "tls_key_passphrase_file, or tls_key_passphrase in the environment or the settings file"
        )
    try:
        with _in_memory(pair.certificate) as certificate, _in_memory(pair.key) as key:
            # Without a passphrase, OpenSSL would prompt for one on the terminal.
            context.load_cert_chain(certificate, key, password=passphrase or b"none")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or ""
        if reason in {"KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"}:
            raise BadCertificates(
                f"{pair.key_from} is not the key of the certificate ({pair.certificate_from}); "
                "give the key that belongs to it"
            ) from None
        if encrypted:
            raise BadCertificates(
                f"{pair.key_from} cannot be decrypted with the passphrase (tls_key_passphrase, "
                "tls_key_passphrase_file); give the passphrase that the key was encrypted with"
            ) from None
        said = reason.replace("_", " ").lower() or "not decodable"
        raise BadCertificates(
            f"{pair.certificate_from} or its key ({pair.key_from}) cannot be used: {said}; give a "
            "certificate and a key in PEM format, with RSA of 2,048 bits or an elliptic curve"
        ) from None


@contextmanager
def _in_memory(data: bytes) -> Iterator[str]:
    """Yield the path of a file in memory, since OpenSSL reads certificates only from files."""
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


# -- replacing -------------------------------------------------------------------------------------


class Certificates:
    """The certificates of new connections."""

    def __init__(self, files: ServerTlsFiles, say: Say) -> None:
        """Read the certificates.  Raises: BadCertificates."""
        self._files = files
        self._say = say
        material = read_material(files)
        self._context = make_context(files, material)
        self._digest = material.digest()
        #: The last logged fault, which is not logged again.
        self._told = ""
        #: The number of times that the certificates were replaced.
        self.replaced = 0

    def context(self) -> ssl.SSLContext:
        """Return the TLS context for a new connection."""
        return self._context

    async def reload(self) -> bool:
        """Read the files again; return whether changed certificates are in use now.

        A thread reads the files, because they may be on a slow network.  If they are not valid, the
        fault is logged once, and the old certificates remain in use.
        """
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(None, self._read_new, self._digest)
        except (BadCertificates, OSError) as fault:
            # Reading needs descriptors, and none may be free at the moment (OSError).
            text = str(fault)
            if text != self._told:
                self._told = text
                self._say("error", f"the certificates were not replaced: {text}")
            return False
        self._told = ""
        if found is None:
            return False
        self._context, self._digest = found
        self.replaced += 1
        self._say("info", "certificates replaced; open connections keep the old ones")
        return True

    def _read_new(self, digest: bytes) -> tuple[ssl.SSLContext, bytes] | None:
        """Return a new context and digest, or None if nothing changed.  Raises: BadCertificates."""
        material = read_material(self._files)
        new = material.digest()
        return None if new == digest else (make_context(self._files, material), new)

    async def watch(self, seconds: float) -> None:
        """Reload the files periodically."""
        while True:
            await asyncio.sleep(seconds)
            await self.reload()
