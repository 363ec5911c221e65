"""Loads the certificates in the settings, and reports inconsistent TLS settings."""

from __future__ import annotations

from typing import Final

from leveret.config import Settings
from leveret.server.opening.certificates import BadCertificates, Certificates, ServerTlsFiles
from leveret.server.opening.opening import Say

#: Settings that have no effect without a certificate, so setting one without it is an error.
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
    """Return the certificates, or None if TLS is not configured.  Raises: BadCertificates."""
    if settings.tls_certificate is None:
        _check_nothing_set(settings)
        return None
    files = ServerTlsFiles(
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
        say("warning", "clients are not asked for a certificate: tls_ca is set without tls_verify")
    return Certificates(files, say)


def _check_nothing_set(settings: Settings) -> None:
    """Refuse TLS settings that need a certificate.  Raises: BadCertificates."""
    for name in _NEEDS_CERTIFICATE:
        if name in settings.model_fields_set and getattr(settings, name) not in {None, 0}:
            raise BadCertificates(
                f"{name}: TLS needs a certificate; set tls_certificate to its file, "
                f"or remove {name}"
            )
    if settings.tls_verify != "none":
        raise BadCertificates(
            "tls_verify: TLS needs a server certificate; set tls_certificate to its file, "
            "or remove tls_verify"
        )
    if not settings.amqp:
        raise BadCertificates(
            "amqp: without TLS the broker would not listen for AMQP at all; set tls_certificate "
            "to a certificate file, or remove amqp"
        )
