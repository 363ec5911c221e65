"""The mapping of routing keys to partitions by MurmurHash3.

RabbitMQ's exchanges of type x-super-stream and its stream clients use the 32-bit variant for x86
with this seed, so a key has the same partition in both brokers.
"""

from __future__ import annotations

from typing import Final

from mmh3 import mmh3_32_uintdigest

#: The seed of RabbitMQ and its clients, the 10,000th prime.
PARTITION_SEED: Final = 104_729


def partition_of(routing_key: bytes, partitions: int) -> int:
    """Return the partition of a routing key, out of `partitions`."""
    return mmh3_32_uintdigest(routing_key, PARTITION_SEED) % partitions
