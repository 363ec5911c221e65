"""The authorities that a command trusts over TLS, and its certificate: PEM files.

For AMQP, environment variables name the files; a context sets them for its own URI.  Without them,
a command trusts the system's authorities, or those in the file that OpenSSL's variable
`SSL_CERT_FILE` names.
"""

from __future__ import annotations

import os
import ssl
from typing import Final

from leveret.cli.exits import CONFIG, Failure
from leveret.client.uri import Parameters

#: The environment variables for AMQP, by the field of a context.
VARIABLES: Final = {
    "ca_file": "LEVERET_CA_FILE",
    "certificate_file": "LEVERET_CERTIFICATE_FILE",
    "key_file": "LEVERET_KEY_FILE",
}


def tls_of(ca_file: str, certificate_file: str, key_file: str) -> ssl.SSLContext:
    """Return a client's TLS context; each file name may be empty.  Raises: Failure."""
    try:
        made = ssl.create_default_context(cafile=ca_file or None)
    except OSError as error:
        text = f"ca_file {ca_file}: {error.strerror or error}"
        raise Failure(text, CONFIG) from None
    if certificate_file:
        try:
            made.load_cert_chain(certificate_file, key_file or None)
        except OSError as error:
            text = f"certificate_file {certificate_file}: {error.strerror or error}"
            raise Failure(text, CONFIG) from None
    return made


def amqp_tls(parameters: Parameters) -> ssl.SSLContext | None:
    """Return the TLS context of an AMQP connection, or None for `amqp://`.  Raises: Failure."""
    if not parameters.tls:
        return None
    return tls_of(*(os.environ.get(variable, "") for variable in VARIABLES.values()))
