"""The certificates that the settings name, or what is wrong with them."""

from __future__ import annotations

from typing import Final

from leveret.config import Settings
from leveret.server.opening.certificates import BadCertificates, Certificates, TlsFiles
from leveret.server.opening.opening import Say

#: Settings that do nothing without a certificate: who sets one of them expects TLS.
_NEEDS_CERTIFICATE: Final = (
    "tls_key",
    "tls_key_passphrase_file",
    "tls_chain",
    "tls_sni_dir",
    "tls_ca",
    "tls_port",
    "https_port",
)


def make_certificates(settings: Settings, say: Say) -> Certificates | None:
    """Return the certificates, None where no TLS is asked for.  Raises: BadCertificates."""
    if settings.tls_certificate is None:
        _check_nothing_set(settings)
        return None
    files = TlsFiles(
        certificate=settings.tls_certificate,
        key=settings.tls_key,
        passphrase=settings.tls_key_passphrase.get_secret_value().encode(),
        passphrase_file=settings.tls_key_passphrase_file,
        chain=settings.tls_chain,
        ca=settings.tls_ca,
        verify=settings.tls_verify,
        version_min=settings.tls_version_min,
        sni_dir=settings.tls_sni_dir,
    )
    if files.ca is not None and files.verify == "none":
        say("warning", "no client is asked for a certificate: tls_ca is set, but tls_verify is not")
    return Certificates(files, say)


def _check_nothing_set(settings: Settings) -> None:
    """Refuse settings of TLS without a certificate.  Raises: BadCertificates."""
    for name in _NEEDS_CERTIFICATE:
        if name in settings.model_fields_set and getattr(settings, name) not in {None, 0}:
            raise BadCertificates(
                f"{name}: there is no TLS without a certificate; name its file by tls_certificate, "
                f"or leave {name} out"
            )
    if settings.tls_verify != "none":
        raise BadCertificates(
            "tls_verify: there is no TLS without a certificate of the broker; name its file by "
            "tls_certificate, or leave tls_verify out"
        )
    if not settings.amqp:
        raise BadCertificates(
            "amqp: without TLS nothing would listen for AMQP; name the file of a certificate by "
            "tls_certificate, or leave amqp out"
        )
