"""Files with a secret, such as those of Docker and Kubernetes: the first line is the secret."""

from __future__ import annotations

from pathlib import Path
from typing import Final

#: The maximum length of a secret.
SECRET_BYTES_MAX: Final = 65_536


def read_secret(path: Path | str) -> str:
    """Return the first line of a file without its line end.

    Raises: ValueError with the reason if it cannot be read, is empty, too long or no text.
    """
    try:
        with Path(path).open("rb") as file:
            line = file.readline(SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    if len(line) > SECRET_BYTES_MAX:
        raise ValueError(f"the first line of {path} is longer than {SECRET_BYTES_MAX} bytes")
    try:
        # Some editors begin a file with a byte order mark.
        secret = line.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError:
        raise ValueError(f"the first line of {path} is not UTF-8") from None
    if not secret:
        raise ValueError(f"the first line of {path} is empty")
    if "\0" in secret:
        # A login over AMQP could not contain it; files in UTF-16 do.
        raise ValueError(f"the first line of {path} contains a NUL")
    return secret
