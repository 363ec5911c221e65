"""A certificate authority for tests, and certificates signed by it, made with `openssl`."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Certificate:
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates, which are trusted by clients that trust `certificate`."""

    def __init__(self, folder: Path) -> None:
        found = shutil.which("openssl")
        if found is None:
            pytest.skip("openssl is not installed")
        self._openssl = found
        self._folder = folder
        self.certificate = folder / "authority.pem"
        self._key = folder / "authority.key"
        extensions = ["-addext", "basicConstraints=critical,CA:TRUE"]
        self._run(
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=Tests of Leveret", *extensions),
            *("-keyout", str(self._key), "-out", str(self.certificate)),
        )

    def sign(
        self, name: str, subject: str, days: int = 2, distinguished_name: str = ""
    ) -> Certificate:
        """Return a certificate for `subject` (`DNS:…` or `IP:…`), expired if days are negative.

        `distinguished_name` is in openssl's format, `/O=…/CN=…`; the default is `/CN=<name>`.
        """
        made = Certificate(self._folder / f"{name}.pem", self._folder / f"{name}.key")
        request, extensions = self._folder / f"{name}.csr", self._folder / f"{name}.ext"
        extensions.write_text(f"subjectAltName={subject}\n")
        self._run(
            *("req", "-newkey", "rsa:2048", "-nodes", "-utf8", "-multivalue-rdn"),
            *("-subj", distinguished_name or f"/CN={name}"),
            *("-keyout", str(made.key), "-out", str(request)),
        )
        self._run(
            *("x509", "-req", "-in", str(request), "-days", str(days)),
            *("-CA", str(self.certificate), "-CAkey", str(self._key), "-CAcreateserial"),
            *("-extfile", str(extensions), "-out", str(made.certificate)),
        )
        return made

    def _run(self, *arguments: str) -> None:
        subprocess.run([self._openssl, *arguments], check=True, capture_output=True)
