"""The trusted authorities of a read or a write over TLS, and its own certificate, as PEM files.

They are named by options.  A URI names no file, because it may come from configuration that is less
trusted than the code.  The driver and each executor read the files, under the same names.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, fields

from leveret.client import Parameters
from leveret.spark.errors import SourceError


class TrustError(SourceError, ValueError):
    """A file of an option cannot be used; the text names the option, the file and the cause."""


@dataclass(frozen=True, slots=True)
class ClientTlsFiles:
    """The files of a client; each may be empty.

    Without `ca_file` the authorities of the system are trusted, or those of the file that OpenSSL's
    variable `SSL_CERT_FILE` names.  Without `key_file` the key is in `certificate_file`.
    """

    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""

    def context(self) -> ssl.SSLContext:
        """Return a client's TLS.  Raises: TrustError."""
        try:
            made = ssl.create_default_context(cafile=self.ca_file or None)
        except OSError as error:
            raise _refused("caFile", self.ca_file, error) from None
        if self.certificate_file:
            try:
                made.load_cert_chain(self.certificate_file, self.key_file or None)
            except OSError as error:
                raise _refused("certificateFile", self.certificate_file, error) from None
        return made


@dataclass(frozen=True)
class BrokerParameters(Parameters):
    """Where to connect, with the files of TLS."""

    files: ClientTlsFiles = ClientTlsFiles()

    @classmethod
    def of(cls, parameters: Parameters, files: ClientTlsFiles) -> BrokerParameters:
        """Return parameters with the files."""
        said = {one.name: getattr(parameters, one.name) for one in fields(parameters)}
        return cls(**{**said, "files": files})


def context_of(parameters: Parameters) -> ssl.SSLContext | None:
    """Return the TLS context of a connection; None if no option is about it.

    Raises: TrustError.
    """
    if isinstance(parameters, BrokerParameters) and parameters.files != ClientTlsFiles():
        return parameters.files.context()
    return None


def _refused(option: str, path: str, error: OSError) -> TrustError:
    return TrustError(f"option {option!r}: {path}: {error.strerror or error}")
