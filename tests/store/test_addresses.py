"""Addresses are shared by the messages that recovery reads, up to a limit."""

from __future__ import annotations

from leveret.message import Address
from leveret.store.records.record import ADDRESSES_KNOWN_MAX, AddressCache


def look_up(addresses: AddressCache, wire: bytes) -> Address:
    """Return the address that two short strings stand for."""
    key = 1 + wire[0]
    return addresses.address(b"before" + wire + b"after", 7, 7 + key, 6 + len(wire))


def wire_of(number: int) -> bytes:
    """Return an address with a key of its own, as bytes."""
    return Address(b"exchange", b"key-%d" % number).wire


def test_the_same_bytes_are_one_address() -> None:
    addresses = AddressCache()
    found = look_up(addresses, wire_of(1))
    assert (found.exchange, found.routing_key) == (b"exchange", b"key-1")
    assert look_up(addresses, wire_of(1)) is found
    assert look_up(addresses, wire_of(2)) is not found


def test_beyond_the_limit_the_memory_starts_afresh() -> None:
    addresses = AddressCache()
    first = look_up(addresses, wire_of(0))
    for number in range(1, ADDRESSES_KNOWN_MAX):
        look_up(addresses, wire_of(number))
    assert look_up(addresses, wire_of(0)) is first
    look_up(addresses, wire_of(ADDRESSES_KNOWN_MAX))
    again = look_up(addresses, wire_of(0))
    assert again is not first
    assert again.wire == first.wire
