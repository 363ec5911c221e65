"""The costs of operations, and the share of a round for each kind of work.

One unit is about a microsecond of compiled code on a machine of 2024: roughly the cost of examining
or changing one message, binding or definition.  The cost of bytes that the codec reads and writes
is in `limits`, because the codec does not import the scheduler.
"""

from __future__ import annotations

from typing import Final

from leveret.limits import TABLE_ENTRIES_MAX

# -- lengths of slices and shares ------------------------------------------------------------------

#: The cost, some 2 ms, that a connection or a task may spend before others run.
SLICE: Final = 2048

#: The target length of a round, some 8 ms.  The shares below are upper limits and add up to more.
#: Later work in a round gets the remainder, but at least `SHARE_MIN`; deliveries get at least twice
#: that, and tasks at least a slice.
ROUND: Final = 8192
SHARE_MIN: Final = 512

#: The shares of a round: of input, after which all connections wait for their turns; of deliveries;
#: of all tasks together; of deadlines and the work they cause, such as messages that expire or
#: leave a delayed exchange; and of dead-lettering.
SHARE_OF_INPUT: Final = 4096
SHARE_OF_DELIVERIES: Final = 4096
SHARE_OF_TASKS: Final = 4096
SHARE_OF_DEADLINES: Final = 2048
SHARE_OF_DEAD_LETTERS: Final = 2048

#: The share, after the share of input, for connections with little input, and the limit for each of
#: them.
SHARE_OF_LATE_INPUT: Final = 1024
LATE_SLICE: Final = 128

#: The share of dead-lettering within the transaction that caused it; the rest is done afterwards.
SHARE_OF_TRANSACTION_DEAD_LETTERS: Final = 4096

#: The minimum number of messages that each of many queues may deliver in a round.  Delivering fewer
#: would cost more than it saves.
DELIVERIES_OF_ONE_MIN: Final = 64

#: The maximum number of deadlines called in one round, and of bytes by which dead-lettering may let
#: memory grow in one.  Before the next round the broker checks its memory, and stops multiplying
#: dead letters when the memory is full.
DEADLINES_CALLED_PER_ROUND: Final = 256
DEAD_LETTER_BYTES_PER_ROUND: Final = 262_144

# -- walking over many objects ---------------------------------------------------------------------

#: Entries copied from a table into a list, for a cost of 1.
LISTED_PER_COST: Final = 64
#: List entries skipped, or moved to another list, for a cost of 1.
PASSED_PER_COST: Final = 32
#: Objects examined for a cost of 1; each is at another place in memory.
LOOKED_AT_PER_COST: Final = 16
#: Objects examined together with the objects they refer to, or scheduled, for a cost of 1.
VISITED_PER_COST: Final = 8

#: For a cost of 1: list entries shifted when one before them is removed, such as consumers or
#: chunks; and entries of a list that is copied.
PLACES_MOVED_PER_COST: Final = 2048
COPIED_PER_COST: Final = 256

# -- input and methods -----------------------------------------------------------------------------

#: The average cost of a method, not counting its loops: of one that changes definitions (a declare
#: takes 20 to 40 µs), and of any other.
DEFINING_METHOD: Final = 32
METHOD: Final = 2

#: Bytes of a method beyond `SHORT_METHOD_BYTES` for a cost of 1: its arguments are read, checked,
#: encoded, compared and accounted for value by value, and a value may have one byte.  There are at
#: most `TABLE_ENTRIES_MAX` values; bytes beyond two units for each are long strings.
METHOD_BYTES_PER_COST: Final = 4
METHOD_VALUES_MAX: Final = 2 * TABLE_ENTRIES_MAX

#: Resolving the route of a new routing key and caching it, in addition to the routing itself: names
#: are decoded and permissions checked.
ROUTE_RESOLVED: Final = 4

#: Steps of a user's pattern, and lookups of routing keys, for a cost of 1.
PATTERN_WALK_PER_COST: Final = 8
LOOKS_PER_COST: Final = 8

#: Checking the deadlines of one connection, not counting its channels.
TICK: Final = 3

#: Closing a connection for the operator, not counting its channels, consumers and queues.
CONNECTION_CLOSED: Final = 32

# -- definitions -----------------------------------------------------------------------------------

#: Deleting a queue, in addition to the bytes of its definition.
QUEUE_DELETED: Final = 3

#: Removing a binding from the index of its source, which takes some µs if the index is a tree.
BINDING_REMOVED: Final = 4

#: Applying a policy to a queue or an exchange.
POLICY_APPLIED: Final = 16

#: Preparing a partition of a super stream, in addition to the bytes of its definitions; looking at
#: an existing one; and the steps of declaring it: checking the user's permissions, finding it,
#: adding it, applying its policies, and comparing its arguments.  All partitions together have few
#: long arguments (`SUPER_STREAM_BYTES_MAX`); others are found to differ at the first one.
PARTITION_PREPARED: Final = 20
PARTITION_LOOKED_AT: Final = 2
PARTITION_ACCESS: Final = 2
PARTITION_FOUND: Final = 4
PARTITION_ENTERED: Final = 8
PARTITION_GOVERNED: Final = 3
PARTITION_COMPARED: Final = 6

#: The cost of the part of a definitions import that is one journal record, and so is done at once.
#: After a crash, a file of a few hundred entries is imported as a whole, or not at all.
IMPORT_RECORD: Final = 4096

#: Reading an import entry and copying it to the stage; and building an export row, writing it as
#: JSON and sending it.
IMPORTED_ENTRY: Final = 4
EXPORTED_ROW: Final = 16

#: Queues whose messages are counted for a quota, for a cost of 1.
QUEUES_COUNTED_PER_COST: Final = 2

#: Trie nodes that a routing key leads to, for a cost of 1.
TRIE_NODES_PER_COST: Final = 2

# -- messages --------------------------------------------------------------------------------------

#: A message that expires (2 µs), and one that leaves a delayed exchange, in addition to its routing
#: and its copies.
MESSAGE_EXPIRED: Final = 2
DELAYED_MESSAGE: Final = 4

#: A message that is dead-lettered, in addition to its routing and its copies: its headers are read
#: and rewritten, in some 8 µs.
DEAD_LETTER: Final = 8

#: An entry of a dead letter's `x-death`, read and rewritten in some 3 µs, and routing keys in the
#: entry for a cost of 1 more.
DEATH: Final = 3
DEATH_KEYS_PER_COST: Final = 4

#: For a cost of 1: messages in memory, rows of a chunk or entries of a small heap that are examined
#: or moved; messages loaded from a chunk, and entries of a large heap; and publishes of a
#: transaction that are dropped.
MESSAGES_PER_COST: Final = 4
LOADED_PER_COST: Final = 2
DROPPED_PER_COST: Final = 64

#: Bytes of a transaction's small and large messages for a cost of 1 at its commit.
TX_SMALL_BYTES_PER_COST: Final = 1024
TX_LARGE_BYTES_PER_COST: Final = 16_384

# -- staging ---------------------------------------------------------------------------------------

#: Moving a staged message, in addition to its copies: its headers are read twice, and its route is
#: looked up; and making a dead letter of one, with rewritten headers.
STAGED_MESSAGE: Final = 3
STAGED_LETTER: Final = 6

#: The records for giving a sink, or a staging queue; for forgetting one; and for the commit of a
#: batch, in addition to its queues.
SINK_GIVEN: Final = 10
SINK_FORGOTTEN: Final = 5
STAGED_BATCH: Final = 32

# -- memory and chunks -----------------------------------------------------------------------------

#: Messages in memory that are dropped without examining them, for a cost of 1.
MESSAGES_FREED_PER_COST: Final = 4

#: Bytes of large messages freed for a cost of 1: 128 MiB take some 11 ms, because the system takes
#: back each page.
FREED_BYTES_PER_COST: Final = 16_384

#: Reading a chunk from a file at once, and its bytes for a cost of 1: reading and checking 256 KiB,
#: which may be one message, takes some 100 µs.
CHUNK_READ: Final = 32
CHUNK_BYTES_PER_COST: Final = 1024
