"""What things cost, and how much of a round each kind of work may spend.

One unit is about a microsecond of compiled code on a machine of 2024: roughly the cost of examining
or changing one message, binding or definition.  What bytes cost that the codec reads and writes is
in `limits`, because the codec knows no scheduler.
"""

from __future__ import annotations

from typing import Final

from leveret.limits import TABLE_ENTRIES_MAX

# -- how long each may go on -----------------------------------------------------------------------

#: What a connection or a task may spend before others have their turn: some 2 ms.
SLICE: Final = 2048

#: The target length of a round: some 8 ms.  The shares below are upper limits and add up to more.
#: What comes later in a round has what is left of it, but at least `SHARE_MIN`; deliveries have at
#: least twice that, and tasks at least a slice.
ROUND: Final = 8192
SHARE_MIN: Final = 512

#: The shares of a round: of input, after which all connections wait for their turns; of
#: deliveries; of all tasks together; of deadlines with what they bring, such as messages that
#: expire or come back from a delay; and of dead-lettering.
SHARE_OF_INPUT: Final = 4096
SHARE_OF_DELIVERIES: Final = 4096
SHARE_OF_TASKS: Final = 4096
SHARE_OF_DEADLINES: Final = 2048
SHARE_OF_DEAD_LETTERS: Final = 2048

#: What is left, after the share of input, for connections that ask for little, and what each of
#: them may spend of it.
SHARE_OF_LATE_INPUT: Final = 1024
LATE_SLICE: Final = 128

#: What dead-lettering takes as a part of the transaction that caused it; the rest follows it.
SHARE_OF_TRANSACTION_DEAD_LETTERS: Final = 4096

#: Messages that each of many queues may deliver in a round at least: to deliver fewer would cost
#: more than it saves.
DELIVERIES_OF_ONE_MIN: Final = 64

#: Deadlines that are called in one round, and bytes by which dead-lettering may let memory grow in
#: one: before the next round the broker judges its memory, and stops multiplying dead letters when
#: that is full.
DEADLINES_CALLED_PER_ROUND: Final = 256
DEAD_LETTER_BYTES_PER_ROUND: Final = 262_144

# -- looking at many -------------------------------------------------------------------------------

#: Entries that are copied from a table into a list, for a cost of 1.
LISTED_PER_COST: Final = 64
#: Entries of a list that are skipped, or moved to another list, for a cost of 1.
PASSED_PER_COST: Final = 32
#: Objects that are examined for a cost of 1: each is somewhere else in memory.
LOOKED_AT_PER_COST: Final = 16
#: Objects that are examined together with what they refer to, or scheduled, for a cost of 1.
VISITED_PER_COST: Final = 8

#: For a cost of 1: places of a list that move when one before them is taken out, such as consumers
#: or chunks; and places of a list that is copied.
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

#: Finding where messages with a new routing key go, and caching that, in addition to the routing
#: itself: names are decoded and permissions checked.
ROUTE_RESOLVED: Final = 4

#: Steps of a user's pattern, and looks at keys of routing, for a cost of 1.
PATTERN_WALK_PER_COST: Final = 8
LOOKS_PER_COST: Final = 8

#: Checking the deadlines of one connection, not counting its channels.
TICK: Final = 3

#: The end of a connection that the operator closes, not counting what it held.
CONNECTION_CLOSED: Final = 32

# -- definitions -----------------------------------------------------------------------------------

#: The end of a queue, beside the bytes of its definition.
QUEUE_DELETED: Final = 3

#: A binding that leaves the index of its source: some µs where that is a tree.
BINDING_REMOVED: Final = 4

#: A policy that is applied to a queue or an exchange.
POLICY_APPLIED: Final = 16

#: A partition of a super stream that is prepared, beside the bytes of its definitions; the look at
#: one that is there; and what follows when it is declared: the user's rights to it, finding it,
#: entering it, its policies, and the comparison of its arguments.  Long arguments are few in all
#: partitions (`SUPER_STREAM_BYTES_MAX`), and others are found to differ at the first one.
PARTITION_PREPARED: Final = 20
PARTITION_LOOKED_AT: Final = 2
PARTITION_ACCESS: Final = 2
PARTITION_FOUND: Final = 4
PARTITION_ENTERED: Final = 8
PARTITION_GOVERNED: Final = 3
PARTITION_COMPARED: Final = 6

#: What of an import of definitions is one record of the journal, and so is done at once: a file of
#: some hundred entries is there whole after a crash, or not at all.
IMPORT_RECORD: Final = 4096

#: An entry of an import that is read and copied to the stage, and a row of an export: it is made,
#: written as JSON and sent.
IMPORTED_ENTRY: Final = 4
EXPORTED_ROW: Final = 16

#: Queues whose messages are counted for a quota for a cost of 1.
QUEUES_COUNTED_PER_COST: Final = 2

#: Nodes of a trie that a routing key leads to for a cost of 1.
TRIE_NODES_PER_COST: Final = 2

# -- messages --------------------------------------------------------------------------------------

#: A message that expires (2 µs), and one that a delayed exchange lets go, beside the routing and
#: the copies that follow.
MESSAGE_EXPIRED: Final = 2
DELAYED_MESSAGE: Final = 4

#: A message that is dead-lettered, beside its routing and its copies: headers are read and written
#: anew, in some 8 µs.
DEAD_LETTER: Final = 8

#: An entry of its `x-death`, which is read and written anew in some 3 µs, and routing keys of that
#: for a cost of 1 more.
DEATH: Final = 3
DEATH_KEYS_PER_COST: Final = 4

#: For a cost of 1: messages in memory, rows of a chunk or entries of a small heap that are looked
#: at or moved; messages that are loaded from a chunk, and entries of a large heap; and publishes of
#: a transaction that are dropped.
MESSAGES_PER_COST: Final = 4
LOADED_PER_COST: Final = 2
DROPPED_PER_COST: Final = 64

#: Bytes of the small and the large messages of a transaction for a cost of 1 at its commit.
TX_SMALL_BYTES_PER_COST: Final = 1024
TX_LARGE_BYTES_PER_COST: Final = 16_384

# -- staging ---------------------------------------------------------------------------------------

#: A staged message that moves, beside its copies: its headers are read twice, and its route is
#: looked up; and one of which a dead letter is made, whose headers are written anew.
STAGED_MESSAGE: Final = 3
STAGED_LETTER: Final = 6

#: The records of a sink that is given, or of a staging queue; of one that is forgotten; and of the
#: commit of a batch, beside its queues.
SINK_GIVEN: Final = 10
SINK_FORGOTTEN: Final = 5
STAGED_BATCH: Final = 32

# -- memory and chunks -----------------------------------------------------------------------------

#: Messages in memory that are dropped without a look at them for a cost of 1.
MESSAGES_FREED_PER_COST: Final = 4

#: Bytes of large messages that are let go for a cost of 1: 128 MiB take some 11 ms, because the
#: system takes back each page.
FREED_BYTES_PER_COST: Final = 16_384

#: A chunk that is read from a file at once, and bytes of it for a cost of 1: reading and checking
#: 256 KiB, which may be one message, takes some 100 µs.
CHUNK_READ: Final = 32
CHUNK_BYTES_PER_COST: Final = 1024
