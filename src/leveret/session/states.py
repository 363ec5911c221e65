"""The states of a connection and the reasons why it parses no input."""

from __future__ import annotations

from typing import Final

# In the order in which a connection goes through them.
HEADER_NEXT: Final = 0
START_OK_NEXT: Final = 1
TUNE_OK_NEXT: Final = 2
OPEN_NEXT: Final = 3
OPEN: Final = 4
#: A connection.close was sent; only its close-ok counts.
CLOSING: Final = 5
CLOSED: Final = 6

# Bits of `halted`: what the connection waits for.
#: A sync that a reply depends on, or that makes room for more unsynced bytes.
HALT_SYNC: Final = 1
#: The peer reads its output.
HALT_OUTPUT: Final = 2
#: The end of an alarm.
HALT_ALARM: Final = 4
#: The answer of who judges logins.
HALT_LOGIN: Final = 8
#: The end of the delay that a refused login costs.
HALT_REFUSED: Final = 16
#: The disk takes what queues have no memory for.
HALT_SPILL: Final = 32
#: The decision about a batch.
HALT_COMMIT: Final = 64
