"""What is wrong when TLS does not begin, in words that say what to do.

Python's own errors name OpenSSL's reason alone; here they get the address and the remedy.  The
class stays a subclass of Python's, so that programs that catch those go on doing so.

Not here: what is trusted.  That is the `ssl.SSLContext`'s; the default one trusts the system's
authorities and checks the name.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from leveret.client.errors import ClientError

if TYPE_CHECKING:
    from leveret.client.uri import Parameters

#: OpenSSL's codes (x509_vfy.h) of what can be wrong with a certificate.
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

#: What OpenSSL reports of a peer that answers with something else than TLS.
NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "PACKET_LENGTH_TOO_LONG"})


class CertificateRefused(ClientError, ssl.SSLCertVerificationError):
    """The broker's certificate does not verify; the text says why and what to do."""


class TlsFailed(ClientError, ssl.SSLError):
    """TLS with the broker did not begin; the text says why and what to do."""


def explained(error: ssl.SSLError, parameters: Parameters) -> ssl.SSLError:
    """Return the error to raise instead of Python's for a connection to `parameters`."""
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
    # What programs look at beside the class.
    made.reason, made.library, made.errno = error.reason, error.library, error.errno
    if isinstance(error, ssl.SSLCertVerificationError):
        assert isinstance(made, ssl.SSLCertVerificationError)
        made.verify_code, made.verify_message = error.verify_code, error.verify_message
    return made


def _cause(error: ssl.SSLCertVerificationError, host: str) -> str:
    """Return why a certificate was refused, and what to do."""
    code = error.verify_code
    if code in {HOST_MISMATCH, ADDRESS_MISMATCH}:
        return (
            f"it is not for the name {host!r}. Connect by a name that the certificate has, "
            "or have the broker's certificate issued for this name (its subjectAltName)"
        )
    if code == EXPIRED:
        return "it, or one that it was signed with, has expired. Renew it on the broker"
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
