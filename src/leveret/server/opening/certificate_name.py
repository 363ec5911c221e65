"""Finds the user name in a client's verified certificate, for logins by EXTERNAL.

Only a name that equals the name of a user exactly is a match.  A certificate in which the name is
missing, ambiguous or too long for a user name counts as one without a name.
"""

from __future__ import annotations

import ssl
from typing import Any, Final, Literal

from leveret.limits import SHORT_STRING_BYTES_MAX

#: The part of the certificate that contains the name.
LoginFrom = Literal["distinguished_name", "common_name", "san_dns", "san_email", "san_uri"]

_SAN_KINDS: Final = {"san_dns": "DNS", "san_email": "email", "san_uri": "URI"}

#: The short names of RFC 4514 and RFC 4519 for Python's attribute names.
_SHORT: Final = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
    "serialNumber": "SERIALNUMBER",
    "title": "T",
    "surname": "SN",
    "givenName": "GN",
    "emailAddress": "EMAILADDRESS",
}

_ESCAPED: Final = frozenset(',+"\\<>;=')


class LoginName:
    """Finds the name of a client in the part of its certificate that `tls_login_from` selects."""

    def __init__(self, source: LoginFrom) -> None:
        self._source = source

    def of(self, connection: ssl.SSLObject | ssl.SSLSocket) -> str:
        """Return the name, or "" if there is no verified certificate or no name in it."""
        try:
            certificate = connection.getpeercert()
        except ValueError:
            # The certificate contains text that is invalid in its declared encoding.
            return ""
        return self.within(certificate) if certificate else ""

    def within(self, certificate: dict[str, Any]) -> str:
        """Return the name in a certificate that `ssl` has decoded, or ""."""
        subject = certificate.get("subject", ())
        if self._source == "distinguished_name":
            name = distinguished_name(subject)
        else:
            if self._source == "common_name":
                names = [v for part in subject for kind, v in part if kind == "commonName"]
                names = names if len(names) == 1 else []
            else:
                wanted = _SAN_KINDS[self._source]
                names = [v for kind, v in certificate.get("subjectAltName", ()) if kind == wanted]
            name = str(names[0]) if names else ""
        return name if len(name.encode()) <= SHORT_STRING_BYTES_MAX else ""


def distinguished_name(subject: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """Return a subject in the form of RFC 4514, with the last part first as in RabbitMQ."""
    parts = []
    for part in reversed(subject):
        pairs = (f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in part)
        parts.append("+".join(pairs))
    return ",".join(parts)


def _escaped(value: str) -> str:
    """Return a value with special characters escaped (RFC 4514, section 2.4)."""
    text = "".join(f"\\{c}" if c in _ESCAPED else "\\00" if c == "\0" else c for c in value)
    if text.startswith((" ", "#")):
        text = "\\" + text
    if text.endswith(" ") and not text.endswith("\\ "):
        text = text[:-1] + "\\ "
    return text
