"""The PEM files of a TLS connection: the trusted authorities and the client's certificate.

Options name the files.  A URI must not name files, because it may come from configuration that is
less trusted than the code.  The driver and each executor read the files at the same paths.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, fields

from leveret.client import Parameters
from leveret.spark.errors import SourceError


class TrustError(SourceError, ValueError):
    """A TLS file cannot be used; the text names the option, the file and the cause."""


@dataclass(frozen=True, slots=True)
class ClientTlsFiles:
    """The paths of a client's TLS files, each of which may be empty.

    Without `ca_file`, the system's authorities are trusted, or those in the file that OpenSSL's
    variable `SSL_CERT_FILE` names.  Without `key_file`, the key is in `certificate_file`.
    """

    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""

    def context(self) -> ssl.SSLContext:
        """Return a TLS context for a client.  Raises: TrustError."""
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
    """The parameters of a connection, with its TLS files."""

    files: ClientTlsFiles = ClientTlsFiles()

    @classmethod
    def of(cls, parameters: Parameters, files: ClientTlsFiles) -> BrokerParameters:
        """Return a copy of the parameters, with the files."""
        said = {one.name: getattr(parameters, one.name) for one in fields(parameters)}
        return cls(**{**said, "files": files})


def context_of(parameters: Parameters) -> ssl.SSLContext | None:
    """Return a connection's TLS context, or None if no TLS file is set.  Raises: TrustError."""
    if isinstance(parameters, BrokerParameters) and parameters.files != ClientTlsFiles():
        return parameters.files.context()
    return None


def _refused(option: str, path: str, error: OSError) -> TrustError:
    return TrustError(f"option {option!r}: {path}: {error.strerror or error}")
