"""Error messages for failed TLS handshakes that say how to fix the cause.

Python's own errors contain only OpenSSL's reason; these add the address and the remedy.  They are
subclasses of Python's errors, so that existing handlers still work.

Trust is configured in the `ssl.SSLContext`, not here.  The default context trusts the system's
authorities and checks the host name.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from leveret.client.errors import ClientError

if TYPE_CHECKING:
    from leveret.client.uri import Parameters

#: OpenSSL's error codes for certificates (x509_vfy.h).
NOT_YET_VALID: Final = 9
EXPIRED: Final = 10
SELF_SIGNED: Final = 18
SELF_SIGNED_IN_CHAIN: Final = 19
NO_ISSUER: Final = 20
NO_FIRST_ISSUER: Final = 21
REVOKED: Final = 23
HOST_MISMATCH: Final = 62
ADDRESS_MISMATCH: Final = 64

UNKNOWN_AUTHORITY: Final = frozenset(
    {SELF_SIGNED, SELF_SIGNED_IN_CHAIN, NO_ISSUER, NO_FIRST_ISSUER}
)

#: OpenSSL's reasons when the peer does not speak TLS.
NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"})


class CertificateRefused(ClientError, ssl.SSLCertVerificationError):
    """The broker's certificate was refused; the text gives the reason and the remedy."""


class TlsFailed(ClientError, ssl.SSLError):
    """The TLS handshake with the broker failed; the text gives the reason and the remedy."""


def explained(error: ssl.SSLError, parameters: Parameters) -> ssl.SSLError:
    """Return the error to raise instead of Python's, for a connection to `parameters`."""
    where = f"{parameters.host}:{parameters.port}"
    if isinstance(error, ssl.SSLCertVerificationError):
        made: ssl.SSLError = CertificateRefused(
            f"the certificate of {where} was refused: {_cause(error, parameters.host)}"
        )
    elif error.reason in NOT_TLS:
        made = TlsFailed(
            f"{where} does not speak TLS: use amqp:// (or tls=False), or the port of TLS, "
            "which is usually 5671"
        )
    else:
        made = TlsFailed(f"TLS with {where} failed: {error}")
    # Programs may read these attributes in addition to the class.
    made.reason, made.library, made.errno = error.reason, error.library, error.errno
    if isinstance(error, ssl.SSLCertVerificationError):
        assert isinstance(made, ssl.SSLCertVerificationError)
        made.verify_code, made.verify_message = error.verify_code, error.verify_message
    return made


def _cause(error: ssl.SSLCertVerificationError, host: str) -> str:
    """Return the reason why a certificate was refused, and the remedy."""
    code = error.verify_code
    if code in {HOST_MISMATCH, ADDRESS_MISMATCH}:
        return (
            f"it is not for the name {host!r}. Connect by a name in the certificate, "
            "or have the broker's certificate issued for this name (its subjectAltName)"
        )
    if code == EXPIRED:
        return "it, or a certificate that signed it, has expired. Renew it on the broker"
    if code == NOT_YET_VALID:
        return "it is not valid yet. Compare the clocks of this machine and of the broker's"
    if code in UNKNOWN_AUTHORITY:
        return (
            "no authority that this machine trusts has signed it "
            f"({error.verify_message}). Trust the broker's authority: "
            "ssl=ssl.create_default_context(cafile=...)"
        )
    if code == REVOKED:
        return "it was revoked. Renew it on the broker"
    return f"{error.verify_message}"
