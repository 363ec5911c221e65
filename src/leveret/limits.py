"""Every limit of the house with its reason.  A setting may lower or raise some of them.

Units come last in each name.
"""

from __future__ import annotations

from typing import Final

# -- wire ------------------------------------------------------------------------------------------

#: A short string's length is one byte (AMQP 0-9-1 section 4.2.5.3).
SHORT_STRING_BYTES_MAX: Final = 255

#: What a peer may send before tuning: the specification's least frame (section 2.3.5).
FRAME_BYTES_MIN: Final = 4096

#: The frame size offered by default, as RabbitMQ does.
FRAME_BYTES_MAX: Final = 131_072

#: The bytes of a frame that are not payload (type, channel, size, end).  RabbitMQ tolerates a
#: payload of `frame_max`, so the same is tolerated here.
FRAME_OVERHEAD_BYTES: Final = 8

#: Field tables nest at most this deep: deeper ones serve only to exhaust a stack.
TABLE_DEPTH_MAX: Final = 32

#: Entries in one table with all the tables and arrays in it.
TABLE_ENTRIES_MAX: Final = 4096

#: One definition (a queue, a policy, a user, ...) as its record holds it: a frame of AMQP holds
#: 128 KiB of arguments by default, and every checkpoint writes each definition again.
DEFINITION_BYTES_MAX: Final = 1024 * 1024

#: The largest body by default, as in RabbitMQ 3.10 (4.3: 16 MiB): real programs send 20 MB.
MESSAGE_BYTES_MAX: Final = 128 * 1024 * 1024

#: A message may take this part of `memory_bytes_max`.  A broker holds a second copy of a body while
#: it writes it to the journal, and another in the output of each connection it is delivered to.
MESSAGE_SHARE: Final = 8

#: Memory of the program itself: 62 MiB after the start, compiled.
PROGRAM_BYTES: Final = 64 * 1024 * 1024

#: The fewest threads that a broker works with: the event loop's, four for files, two for passwords,
#: one for TLS, and some that resolve names and load what is rarely used.
THREADS_LEAST: Final = 16

# -- session ---------------------------------------------------------------------------------------

#: What a peer may send before its TLS handshake is done.  OpenSSL takes a chain of 100 kB.
TLS_HANDSHAKE_BYTES_MAX: Final = 131_072

#: What goes to OpenSSL or comes from it at once: its buffers stay as large as the largest piece.
TLS_PIECE_BYTES: Final = 32_768

#: Records of a TLS handshake: a chain of 100 kB in the smallest fragments (RFC 6066: 512 bytes)
#: has 200.
TLS_HANDSHAKE_RECORDS_MAX: Final = 512

#: Records without content that a peer may send after its handshake, at once and one more each
#: second: a KeyUpdate costs 28 µs, and peers need one in gigabytes.  Go's TLS accepts 16 in a row.
#: OpenSSL gets at most one record more than this at a time.
TLS_EMPTY_RECORDS_MAX: Final = 16

#: Records of one peer that are decrypted before others get their turn: one of a byte takes 1 µs.
TLS_RECORDS_PER_TURN: Final = 512

#: What a connection with TLS takes more: OpenSSL's state, and pieces on both ways.
TLS_CONNECTION_BYTES: Final = 130_000

#: How long a closed socket may linger, so that its peer can read the last output: in all, and
#: while nothing is received or sent (nginx's `lingering_time` and `lingering_timeout`); and how
#: much input it drops meanwhile: some tens of milliseconds of work, and more than the buffers of
#: both kernels hold by default.
LINGER_SECONDS_MAX: Final = 30
LINGER_IDLE_SECONDS_MAX: Final = 5
LINGER_BYTES_MAX: Final = 64 * 1024 * 1024

#: One lingering socket is read in so many ms, however many there are: a read takes up to 256 KiB
#: and 0.1 ms, so that peers that send as fast as they can take a tenth of the event loop.
LINGER_READ_MS: Final = 1

#: How long a broker that stops waits for sockets that linger (ms).
LINGER_STOP_MS: Final = 200

#: A header of the PROXY protocol; its addresses take 52 bytes, and further fields some hundreds.
PROXY_HEADER_BYTES_MAX: Final = 4096

#: A file with certificates or a key; a bundle of all public authorities has 230 kB.
CERTIFICATE_FILE_BYTES_MAX: Final = 1024 * 1024

#: Certificates that are chosen by the name that a client asks for.
SNI_CERTIFICATES_MAX: Final = 1024

#: How often files with certificates are looked at.
CERTIFICATES_CHECK_SECONDS: Final = 30

#: Channels open at once on a connection, as RabbitMQ offers; the numbers may be any of 65,535.
CHANNELS_MAX: Final = 2047

#: The heartbeat offered by default.
HEARTBEAT_SECONDS: Final = 60

#: From the connect to connection.open; slower peers are cut off (slowloris).
HANDSHAKE_SECONDS_MAX: Final = 10

#: At which part of the time that an opening may take the broker cuts it off, so that its peer sees
#: that within the time even where the loop is busy.
OPENING_PERCENT: Final = 95

#: A body from this size on goes to the transport by itself and not through the writer.
BODY_APART_BYTES: Final = 65_536

#: Output of one connection beyond which its consumers are fed no more until the peer reads.
OUTPUT_BYTES_HIGH: Final = 1024 * 1024

#: Output of one connection beyond which its input is not read either: replies need room too.
OUTPUT_BYTES_MAX: Final = 4 * 1024 * 1024

#: Memory that a connection keeps for its next output when that was sent; a longer buffer is let go
#: once a second.
OUTPUT_BYTES_KEPT: Final = 16_384

#: Input kept while a connection waits for a sync, beyond which its socket is not read.
INPUT_BYTES_HELD_MAX: Final = 262_144

#: The same while it waits for the end of an alarm: that may take hours, and there may be many.
INPUT_BYTES_BLOCKED_MAX: Final = 16_384

#: What a frame of HareMQ's protocol may announce, as its own programs judge it: the least holds a
#: name of one byte, the most is 64 MiB.
HAREMQ_FRAME_BYTES_MIN: Final = 10
HAREMQ_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024

#: The name of a request with its package and a NUL; the longest of HareMQ's own has 31 bytes.  Each
#: answer repeats the package.
HAREMQ_NAME_BYTES_MAX: Final = 128

#: The frame of any request but a publish: as much as a frame of AMQP has by default, for
#: arguments, and 4 KiB for ids and names.  They are decoded at once, and nobody has logged in.
HAREMQ_REQUEST_BYTES_MAX: Final = 135_168

#: All of a publish that is longer than that but its body: two ids, names and a message id.  The
#: body is taken as it comes, and the other fields are decoded at once.
HAREMQ_LONG_FIELDS_BYTES_MAX: Final = 8192

#: A request's and a channel's id of HareMQ: its client makes ids of 155 characters, and each answer
#: repeats both; a longer one ends the connection, because it cannot be answered.
HAREMQ_ID_BYTES_MAX: Final = 1024

#: Requests of one HareMQ connection whose answers wait for a sync, beyond which no more is parsed.
HAREMQ_ANSWERS_WAITING_MAX: Final = 16_384

#: Deliveries of one HareMQ channel that wait for their ack: its protocol has no prefetch, so this
#: is the one its consumers have.
HAREMQ_UNACKED_MAX: Final = 65_536

#: Exchanges, queues and bindings that the answer to a HareMQ query lists of each, at most.
HAREMQ_LISTED_MAX: Final = 1000

#: Refused requests of one HareMQ connection that are logged: none of them ends it.
HAREMQ_REFUSALS_LOGGED_MAX: Final = 100

#: Resolved routes remembered per connection, and names and addresses as events tell them; beyond it
#: the memory starts afresh.
ROUTES_CACHED_MAX: Final = 1024

#: Targets of all resolved routes that one connection remembers; beyond it the memory starts afresh.
ROUTE_TARGETS_CACHED_MAX: Final = 65_536

#: What a connection may hold beside messages while connections take more memory than they may: the
#: one that holds most is closed, and no honest client holds that much when memory is short.
GREEDY_CONNECTION_BYTES: Final = 65_536

#: Consumers on one channel.
CONSUMERS_PER_CHANNEL_MAX: Final = 65_535

#: Consumers of one queue or stream, more than there may be connections: a queue asks them in turn
#: which can take a message, and of so many that none can is known after some 2 ms.
CONSUMERS_PER_QUEUE_MAX: Final = 65_535

#: Deliveries of one channel that wait for their ack; prefetch bounds it earlier where it is set.
UNACKED_PER_CHANNEL_MAX: Final = 1_000_000

#: Messages that one transaction publishes, as in RabbitMQ 4.3 (`channel_tx_message_max`), and as
#: many that it settles; their copies in queues; and the bytes of all but the largest: any one
#: message that may be published may be part of a transaction.  A commit is one record of the
#: journal and so is done at once: some 0.3 µs a message and 0.2 to 0.5 µs a copy.
TX_MESSAGES_MAX: Final = 10_000
TX_COPIES_MAX: Final = 16_384
TX_BYTES_MAX: Final = 64 * 1024 * 1024

#: The cost of a commit, as it is estimated while the transaction is held: some 0.7 µs each.  With
#: all of the above at once it would take twice as long.
TX_COST_MAX: Final = 24_576

#: Commits of staged batches in one transaction: each is a record of some 30 µs.  Together they name
#: `STAGING_QUEUES_PER_COMMIT_MAX` queues at most.
TX_COMMITS_MAX: Final = 128

#: Of these bytes, those of messages below `BODY_APART_BYTES`.  They are copied into the record and
#: into streams, which takes 1 to 3 ms for each MiB, while a large body is written from where it is.
TX_SMALL_BYTES_MAX: Final = 8 * 1024 * 1024

#: Bytes of contents that one connection has begun and not completed, with those of transactions
#: that it has not committed; beyond it the connection ends (506).
ASSEMBLING_BYTES_MAX: Final = 512 * 1024 * 1024

#: Bytes above the memory's watermark that contents and transactions begun before the alarm may
#: still fill, but not more than half of the watermark; beyond it their connections end (506).
#: With as much as the watermark again, 40 clients with messages of `MESSAGE_SHARE` got a broker
#: with a watermark of 160 MiB killed in a control group of 400 MiB; with half of it, room was left.
OVERFULL_BYTES_MAX: Final = 512 * 1024 * 1024

#: Memory of definitions and connections that does not count for the memory alarm: what a broker
#: with some hundred queues or fifty clients holds, so that small settings count messages alone.
ACCOUNTS_FREE_BYTES: Final = 1024 * 1024

#: Connections of clients open at once, logged in or not, but no more than the system gives
#: descriptors for; one more takes the place of the oldest that has not logged in, or is dropped.
CONNECTIONS_MAX: Final = 50_000

#: Descriptors that are kept open for the store alone: so many files and directories it may open at
#: once (a journal file, two files of chunks, a checkpoint's snapshot and segment, chunks that four
#: threads read, the ballast, a directory that is synced), and half of them again.
STORE_FILES_MAX: Final = 18

#: Descriptors that no connection gets either: for what is loaded late, for sockets that were
#: accepted and wait for a place, and for the connections of who operates the broker.
DESCRIPTORS_SPARE: Final = 32

#: Connections open at once on the Unix socket: enough for a script that runs many commands at a
#: time, or as few as the minimum if the system gives few descriptors.  One more replaces a
#: connection that has no request.
OPERATOR_CONNECTIONS_MAX: Final = 256
OPERATOR_CONNECTIONS_MIN: Final = 8

#: Permissions that a connection remembers, by name; beyond it the memory starts afresh.
ACCESS_CACHED_MAX: Final = 1024

#: Logins whose password was verified within the last minutes, which is slow on purpose; beyond it
#: the oldest is verified again.
LOGINS_REMEMBERED_MAX: Final = 4096
LOGINS_REMEMBERED_SECONDS: Final = 300

#: Passwords that wait to be verified: of one user from one address, from one address, and all of a
#: kind (known pairs, known addresses, others); one more turns one away.  All are verified before
#: who waits has had enough, also by one thread.
LOGINS_WAITING_PER_USER_MAX: Final = 16
LOGINS_WAITING_PER_NETWORK_MAX: Final = 64
LOGINS_WAITING_MAX: Final = 256

#: How many times longer a refused login waits for its answer where many were refused before.
LOGIN_BACKOFF_MAX: Final = 8

#: Addresses, and pairs of address and user, of which the broker remembers how often they were
#: refused, and pairs that have logged in, for so long.
LOGIN_NETWORKS_KNOWN_MAX: Final = 4096
LOGIN_PAIRS_KNOWN_MAX: Final = 4096
LOGINS_KNOWN_SECONDS: Final = 86_400

# -- broker ----------------------------------------------------------------------------------------

#: Messages that a loop handles before others are served: compiled code holds the GIL meanwhile.
SLICE_MESSAGES: Final = 4096

#: Bytes of a message for a cost of 1 (`broker/scheduler/costs.py`) where they are copied into the
#: output: 60 kB take some 40 µs.
CONTENT_BYTES_PER_COST: Final = 2048

#: Connections whose output is handed to their sockets before input is read (some 8 µs each).
FLUSHES_PER_TURN: Final = 512

#: The bytes of a message from which on it counts what it takes to let go of it.
LARGE_MESSAGE_BYTES: Final = 1 << 20

#: Bytes for a cost of 1: of input where they are no whole message yet; and of a method, or of a
#: message's properties, that are read entry by entry.
INPUT_BYTES_PER_COST: Final = 256
TABLE_BYTES_PER_COST: Final = 16

#: Bytes of a method beyond which its arguments count (`broker/scheduler/costs.py`).
SHORT_METHOD_BYTES: Final = 64

#: Queues and exchanges of one vhost, and bindings from one exchange.
QUEUES_PER_VHOST_MAX: Final = 1_000_000
EXCHANGES_PER_VHOST_MAX: Final = 100_000
BINDINGS_PER_EXCHANGE_MAX: Final = 1_000_000

#: What a user may have on a broker whose data directory this release or a later one has made, where
#: his own limits do not say otherwise (global parameter `default_user_limits`).  No program meets
#: them by design; one that leaks or attacks does, before everybody else feels it.
#: Queues: they take two thirds of a gigabyte of memory, and each checkpoint writes them.
QUEUES_PER_USER: Final = 250_000
#: Bindings: as many as one exchange may have; they take half a gigabyte.
BINDINGS_PER_USER: Final = 1_000_000
#: Connections: four fifths of `CONNECTIONS_MAX`, so that no user takes all places.
CONNECTIONS_PER_USER: Final = 40_000
#: Messages: what 10,000 a second that nobody reads become in a day.
MESSAGES_PER_USER: Final = 1_000_000_000
#: Bytes of messages, in percent of the file system with the data directory: the rest is what the
#: journal, checkpoints and others need before the alarm of the disk blocks everybody.
MESSAGE_BYTES_PER_USER_PERCENT: Final = 80

#: Messages and bytes that one queue takes at most between two counts for a quota: a classic queue
#: is counted with each 64th message and each large one, a stream with each block.  Until all queues
#: of a user together may take him to his quota, none of his publishes is judged.
QUOTA_SLACK_MESSAGES: Final = 4096
QUOTA_SLACK_BYTES: Final = 64 * 65_536

#: Queues that are counted again in one round before publishes are refused by a quota, 0.7 ms in
#: all.  With more queues, or where more is refused in a round, a publish may be refused some times
#: more after messages have left.
QUOTA_RECOUNT_QUEUES: Final = 4096

#: Users, the tags of one and his topic permissions in one vhost; vhosts.
USERS_MAX: Final = 100_000
USER_TAGS_MAX: Final = 64
TOPIC_PERMISSIONS_MAX: Final = 1024

#: The bytes of a password's hash: that of an Argon2 with a long salt has some 150.
PASSWORD_HASH_BYTES_MAX: Final = 1024

VHOSTS_MAX: Final = 10_000

#: What verifying an Argon2 hash of another broker may cost: memory in KiB, and rounds.
ARGON2_KIB_MAX: Final = 1_048_576
ARGON2_ROUNDS_MAX: Final = 64

#: Tags of one vhost, and the bytes of its description.
VHOST_TAGS_MAX: Final = 64
VHOST_DESCRIPTION_BYTES_MAX: Final = 4096

#: Runtime parameters of all vhosts, and global ones; bytes of the value of one.
PARAMETERS_MAX: Final = 4096
PARAMETER_BYTES_MAX: Final = 65_536

#: Policies of one vhost, and operator policies: each new queue is compared with all of them.
POLICIES_PER_VHOST_MAX: Final = 4096

#: Routing keys in the headers CC and BCC of one message: each is as much work as a publish, and all
#: are done at once.  Public programs and reports name a handful.
COPY_KEYS_MAX: Final = 256

#: Bindings of a queue from exchanges that choose one of theirs for each message: these are removed
#: at once when the queue is deleted, some µs each, so that no message is lost by choosing it.
CHOICES_PER_QUEUE_MAX: Final = 1024

#: Bindings that match a message, by all its keys and in all exchanges that it reaches, with what is
#: looked at to find them: places in patterns of topic bindings (two each), conditions on headers.
#: Checks of the keys of CC and BCC against the user's topic permissions are a part of it, and the
#: places in patterns that they look at: 8 to 20 for a key where the pattern is about its beginning.
#: It is done at once, some 0.1 µs each; the fan-out to 100,000 queues stays below.
ROUTING_LOOKS_MAX: Final = 131_072

#: Queues that a message is published to at once: more have it in parts of at least so many, between
#: which others are served.  Each part is recorded with the whole message; as many parts are made as
#: keep these records below so many bytes.
FAN_OUT_COPIES: Final = 2048
FAN_OUT_RECORDED_BYTES: Final = 16 * 1024 * 1024

#: Returned messages of a channel whose earlier publishes wait for a sync, that keep the confirms
#: before and after them apart: so many confirms are written at once after the sync.
CONFIRMS_APART_MAX: Final = 1024

#: Words in a topic key; the matching cost is bounded by it (a short string holds 256 at most).
TOPIC_WORDS_MAX: Final = 256

#: Points that a unit of weight has on the ring of a consistent-hash exchange.  With weights of 1
#: the worst of 4 queues is usually 11 % off its share, the worst of 16 queues 19 %.  Another number
#: would move values of existing exchanges to other queues, past messages that wait there.
RING_POINTS_PER_WEIGHT: Final = 100

#: The weight of one binding there, and of all together (a point takes 44 bytes).
RING_WEIGHT_MAX: Final = 1000
RING_WEIGHTS_MAX: Final = 10_000

#: Messages that a recent-history exchange keeps, by default (as RabbitMQ's plugin) and at most: a
#: bind replays all of them at once.
HISTORY_MESSAGES: Final = 20
HISTORY_MESSAGES_MAX: Final = 4096
#: Copies that one bind replays, the newest messages first to count, where the destination is an
#: exchange with many queues: 0.25 µs each, all at once, because they come before newer messages.
#: A message counts as many as its routing takes steps, if these are more: of long headers.
HISTORY_COPIES_MAX: Final = 16_384

#: Values, or patterns of routing keys, in the filter of one consumer of a stream; words behind the
#: first `#` of these patterns together, each of which every word of a routing key may lead to
#: (0.5 µs; a key has 128 words at most); and the routing keys whose verdict it remembers before it
#: starts afresh.
STREAM_FILTER_VALUES_MAX: Final = 256
STREAM_FILTER_WORDS_MAX: Final = 256
STREAM_FILTER_KEYS_KNOWN_MAX: Final = 4096

#: Blocks of a stream that retention looks at before others are served, 0.1 µs each.  A limit that
#: is set later on a stream of 100 GB drops 400,000 of them, and looks again each second.
MEASURED_AT_ONCE: Final = 16_384

#: Names under which a stream keeps offsets of consumers: each takes room in every checkpoint.
STREAM_OFFSET_NAMES_MAX: Final = 40_000

#: Those of them that one user may own (user limit `max-stream-consumers`): a quarter, so that no
#: user's junk shuts out the others.
STREAM_OFFSET_NAMES_PER_USER_MAX: Final = 10_000

#: How long what a named consumer acked may wait for the record that says so, in ms: one record a
#: name and second costs nothing, and a crash brings back no more than that.
STREAM_OFFSETS_MS: Final = 1000

#: Partitions of one super stream: each is a stream, and every consumer of all reads them all.  All
#: are made at once, some 40 µs each.  Public examples have 3 to 10; RabbitMQ takes 1,000.
SUPER_STREAM_PARTITIONS_MAX: Final = 256
#: The most of one that an earlier release made: it works as before, and may be declared again.
SUPER_STREAM_PARTITIONS_KEPT_MAX: Final = 1024

#: The definitions of what one declare of a super stream makes are one record, which takes some
#: 12 ms to write.  1 KiB for each of 256 partitions are three times what one needs.
SUPER_STREAM_BYTES_MAX: Final = 262_144

#: The longest `x-message-ttl` and `x-expires`: ten years of 365 days, as RabbitMQ takes.  Celery's
#: delayed delivery declares a queue of 2^27 s, which is four.
TTL_MS_MAX: Final = 315_360_000_000

#: The longest delay of a delayed message: ten years, leap days included.
DELAY_MS_MAX: Final = 315_619_200_000

#: A regular expression of a policy or a permission: its text, its groups within groups, what a
#: repeat may count to, and the states that it becomes.
PATTERN_CHARACTERS_MAX: Final = 1024
PATTERN_DEPTH_MAX: Final = 50
PATTERN_REPEATS_MAX: Final = 1000
PATTERN_STATES_MAX: Final = 2000

#: What one match may look at, some 0.1 µs each, after which it is none: each character of the
#: longest name can be at 250 places of the pattern at once, where honest ones are at two or three.
PATTERN_LOOKS_MAX: Final = 65_536

#: What the patterns of all policies of users, and of all of operators, may look at in the name of a
#: queue or an exchange; after that the others do not match.  A plain word takes one; 4,096 patterns
#: may take 16 each, and 600 that are at two places at once may search all of 50 characters.
POLICIES_LOOKS_MAX: Final = 65_536

#: Copies that dead-lettering may make by itself (expiry, limits) of a message that a client put
#: into a queue or rejected there: a fan-out of so many queues, or a chain of them.  One small
#: message can cost as much work as so many publishes.
DEAD_LETTER_COPIES_MAX: Final = 1024

#: What `x-death` tells of a letter, the newest deaths first: entries, their routing keys, bytes.
#: Each death reads and writes them all, and a delivery has them in one frame.
DEATHS_LISTED_MAX: Final = 128
DEATH_KEYS_LISTED_MAX: Final = 2048
DEATHS_BYTES_MAX: Final = 32_768

#: Dead letters that may wait before no more messages expire, or are rejected or returned in bulk.
LETTERS_WAITING_MAX: Final = 4096

#: After this a letter that no queue took is offered again (dead-letter strategy at-least-once).
DEAD_LETTER_RETRY_MS: Final = 1000

#: How often deliveries of a message of a quorum queue may fail by default, as in RabbitMQ 4.3.
DELIVERY_LIMIT_QUORUM: Final = 20

#: The highest counts of a message's returns that were not failures, and of its failures.  Records
#: and chunks hold both in 31 bits, whose greatest number means something else.  A greater delivery
#: limit has no effect.
RETURNS_COUNTED_MAX: Final = 0xFFFF
FAILURES_COUNTED_MAX: Final = 0x7FFE

#: The longest expiration of a message, in ms: ten years, as RabbitMQ.
EXPIRATION_MS_MAX: Final = 315_360_000_000

#: Keys that a queue with a deduplication header remembers by default, and at most.
DEDUPLICATION_KEYS: Final = 1000
DEDUPLICATION_KEYS_MAX: Final = 1_000_000

#: Publishers whose highest number a queue remembers (each takes some 200 bytes).  One more is
#: refused until one of them was idle for long enough: to forget one early would be to take twice.
PUBLISHERS_PER_QUEUE_MAX: Final = 40_000

#: Those of them that one user may own (user limit `max-publishers`): a quarter, so that no user's
#: junk shuts out the others.
PUBLISHERS_PER_USER_MAX: Final = 10_000

#: How long a publisher or a sink may be idle before it is forgotten: a week, so that a job that
#: failed on a Friday may be started again on a Monday.
PUBLISHER_EXPIRY_MS: Final = 604_800_000

#: The same for the name that a client's connection, or a save of a table, made for itself.  Nobody
#: uses it after that connection, which may be lost and try to come back for so long.
CLIENT_PUBLISHER_EXPIRY_MS: Final = 3_600_000

#: How long is known how far the publishes of a client came whose connection was lost: as long as it
#: may try to come back.
PUBLISH_SESSION_EXPIRY_MS: Final = 3_600_000

#: Such clients of one user, connected or not (some 1,500 bytes each): more than a user's programs
#: have connections.  The one lost first is forgotten for one more, and sends everything again.
PUBLISH_SESSIONS_PER_USER_MAX: Final = 4_096

#: Their channels, of this connection and of the lost one: more than clients open.
PUBLISH_SESSION_CHANNELS_MAX: Final = 4_096

#: Runs of publishes that were not taken, of all channels of such a client: as many as a publisher
#: has unconfirmed at a time, by far.  The oldest are forgotten for one more.
PUBLISH_SESSION_GAPS_MAX: Final = 4_096

#: Sinks that a vhost remembers (each takes some 600 bytes): one for each streaming query that
#: writes there, of which a cluster runs hundreds.  All end at once with their vhost.  One more is
#: refused until one of them was idle for long enough.
SINKS_PER_VHOST_MAX: Final = 4_000

#: Those of them that one user may own (user limit `max-sinks`): a quarter, so that no user's junk
#: shuts out the others.
SINKS_PER_USER_MAX: Final = 1_000

#: Staging queues in one commit: the tasks that publish a batch, each to its own.  The decision is
#: one record with all their numbers in it, which `TABLE_ENTRIES_MAX` bounds.
STAGING_QUEUES_PER_COMMIT_MAX: Final = 4000

#: The body of a commit: so many queues with the longest names, as JSON.
COMMIT_BYTES_MAX: Final = 2 * 1024 * 1024

#: Batches of one sink that are committed and not released: who commits faster than they go is told.
RELEASES_PER_SINK_MAX: Final = 64

#: Staged messages that move by one record of the journal, beside `SLICE_MESSAGES`: a few ms of work
#: and of writing.
RELEASE_BYTES: Final = 1024 * 1024

#: What a queue keeps of acked messages where only a time is set, and what each counts beside its
#: bytes: they lie in memory.
RETAINED_BYTES_MAX: Final = 256 * 1024 * 1024
RETAINED_OVERHEAD_BYTES: Final = 256

#: The part of `memory_bytes_max` that acked messages which queues retain and the histories of
#: exchanges may take together: nobody has to take them out, so that they would keep publishers
#: blocked.  For a moment they may take twice as much.
RETENTION_SHARE: Final = 8

#: The part of `memory_bytes_max` that returned messages may take which wait for their retry: they
#: lie in memory for as long as their queue says.  And what each counts for it beside its bytes,
#: most of which is its due time.
RETRY_SHARE: Final = 8
RETRY_OVERHEAD_BYTES: Final = 550
RETRY_TIME_BYTES: Final = 250

#: The part of `memory_bytes_max` that marks may take together: what queues and streams remember
#: beside messages, which goes only with time or with its owner.  And what each takes beside a name:
#: a publisher's number, a key of deduplication, a stored offset.
MARK_SHARE: Final = 8
PUBLISHER_BYTES: Final = 250
KEY_BYTES: Final = 260
OFFSET_BYTES: Final = 280

# -- store -----------------------------------------------------------------------------------------

#: Bytes appended to the journal that are not synced yet; beyond it publishers are not read.
UNSYNCED_BYTES_MAX: Final = 8 * 1024 * 1024

#: The room on the disk that publishers must leave (RabbitMQ: 50 MB): what was accepted before they
#: were blocked fits into it several times.
DISK_FREE_BYTES_MIN: Final = 50_000_000

#: The file that pays for acks, deletes and checkpoints when others have filled the disk: twice what
#: may wait unsynced.
BALLAST_BYTES: Final = 16 * 1024 * 1024

#: After so many bytes written the disk is asked again how much is free; a call costs the thread
#: that syncs a switch, so it is not made for each group.
DISK_MEASURE_BYTES: Final = 1024 * 1024

#: A journal file is closed at this size; a larger single record makes a larger file.
JOURNAL_FILE_BYTES: Final = 64 * 1024 * 1024

#: Zeros that are written ahead of a journal file's end, and the groups they are written for: up to
#: this size, once so many of them came in a row.  A sync that changes neither a file's size nor its
#: blocks takes a quarter less time (86 against 115 µs on ext4).
JOURNAL_AHEAD_BYTES: Final = 256 * 1024
JOURNAL_AHEAD_GROUP_BYTES: Final = 8192
JOURNAL_AHEAD_GROUPS: Final = 16

#: Addresses that recovery shares between messages; beyond it the memory starts afresh.
ADDRESSES_KNOWN_MAX: Final = 4096

#: The journal's size that starts a checkpoint.
JOURNAL_BYTES_MAX: Final = 512 * 1024 * 1024

#: A chunk is closed at either of these; one larger message makes a larger chunk.
CHUNK_BYTES_MAX: Final = 262_144
CHUNK_RECORDS_MAX: Final = 4096

#: Ranges of acks in one record of the journal: what one damaged record can bring back.
ACK_RANGES_PER_RECORD_MAX: Final = 512

#: Chunks and records that a checkpoint holds before they are written.
CHECKPOINT_BYTES_HELD_MAX: Final = 4 * 1024 * 1024

#: The window that a queue has at least, when all together fill the memory for what waits.
QUEUE_WINDOW_BYTES_LEAST: Final = 262_144

#: What it takes to remember how often a message on the disk came back.
RETURN_COUNT_BYTES: Final = 100

#: Chunks that queues write when their memory is full: as many of their bytes go to the disk and are
#: synced at once, and as many wait at most; beyond it publishers are not read.
SPILL_BATCH_BYTES: Final = 4 * 1024 * 1024
SPILL_BYTES_MAX: Final = 8 * 1024 * 1024

#: Memory that the waiting messages of one queue may fill before new ones go to the disk, and what
#: each counts there beside its bytes.
QUEUE_WINDOW_BYTES: Final = 16 * 1024 * 1024
MESSAGE_OVERHEAD_BYTES: Final = 200

#: How long before it is due a delayed message comes back from the disk: a chunk with many that are
#: due one after the other is read every half of it.  Where memory is short only those stay in it
#: that are due within a second, which would be read at once again.
DELAYED_NEAR_MS: Final = 60_000
DELAYED_EVICTED_MS: Final = 1000

#: What a delayed message in memory counts beside its bytes, as its time is kept in a heap; and what
#: a chunk of delayed messages on the disk takes of memory.
DELAYED_OVERHEAD_BYTES: Final = 500
DELAYED_PAGE_BYTES: Final = 1000

#: A segment file with more messages is compacted when less than this share of them lives.
COMPACT_RECORDS_MIN: Final = 2000
COMPACT_LIVE_PERCENT: Final = 50

#: Dead bytes for which a file of fewer messages is compacted too.
COMPACT_DEAD_BYTES_MIN: Final = 4 * 1024 * 1024

#: Dead bytes beyond those that live for which checkpoints are taken to give them back.
RECLAIM_BYTES_MIN: Final = 64 * 1024 * 1024

#: Chunks of a deep queue that are read before its consumers come to them, and the bytes after which
#: no further one is: a chunk may be one message of 128 MiB.
PAGES_AHEAD: Final = 3
PAGES_AHEAD_BYTES: Final = 16 * 1024 * 1024

#: Memory of blocks of streams that files have too: the newest ones, and what was read back.  It
#: holds 200 blocks of large messages, 85 of those with 100 bytes.
STREAM_CACHE_BYTES_MAX: Final = 64 * 1024 * 1024

#: A segment file takes no more chunks from this size on.
SEGMENT_FILE_BYTES: Final = 64 * 1024 * 1024

#: Damaged places that are named to who asks over HTTP; the rest is counted, and in the log.
DAMAGE_PLACES_MAX: Final = 100

# -- client ----------------------------------------------------------------------------------------

#: Messages that came but were not handed to the application yet; beyond it the socket is not read
#: while nothing else is awaited from it.
CLIENT_INPUT_BYTES_HIGH: Final = 16 * 1024 * 1024

#: Beyond this, unless one message alone is larger, the connection ends with an error instead of
#: taking the machine's memory: replies and confirms come behind the messages, so reading cannot
#: always pause.
CLIENT_INPUT_BYTES_MAX: Final = 128 * 1024 * 1024

#: What one such message counts beside its body: objects and property bytes.
CLIENT_MESSAGE_OVERHEAD_BYTES: Final = 512

#: Messages that were handed to the application and count as waiting still, as they are counted
#: together.
CLIENT_TAKEN_BYTES_MAX: Final = 64 * 1024

#: Bytes gathered before they go to the socket even if nothing else asks for it.
CLIENT_OUTPUT_BYTES_HIGH: Final = 65_536

#: Bytes that wait for a broker that does not read; beyond it a publish that may not wait fails.
CLIENT_OUTPUT_BYTES_MAX: Final = 64 * 1024 * 1024

#: After the last time that something was sent acks wait so long for others, when messages of the
#: channel wait to be handed out: sending each alone costs more than all else with a message.
CLIENT_ACK_DELAY_NS: Final = 1_000_000

#: Acks that a client sends out of the order of the deliveries while an older one is not acked.
#: With more the older one is taken to stay, and acks of the channel are put together no more.
CLIENT_EARLY_ACKS_MAX: Final = 65_536

#: The largest body a client takes: RabbitMQ's cap on its own setting.
CLIENT_MESSAGE_BYTES_MAX: Final = 512 * 1024 * 1024

#: Frames of unconfirmed messages that are kept to be sent again after a lost connection; beyond it
#: a publish that may not wait fails.
CLIENT_UNCONFIRMED_BYTES_MAX: Final = 128 * 1024 * 1024

#: Queues, exchanges and bindings, each, that a client remembers to declare them again after a lost
#: connection: for a client that declares without end and lets the broker expire it.
CLIENT_TOPOLOGY_MAX: Final = 100_000

#: Refused or returned publishes that are kept until someone asks for them.
CLIENT_FAILURES_MAX: Final = 1024

#: Partitions of a consumer cluster: each is a queue, and a consumer of every member.  With the
#: weight that each has they stay below `RING_WEIGHTS_MAX`.
CLUSTER_PARTITIONS_MAX: Final = 256

#: Members of a consumer cluster that have a number; more members than partitions have no work.
CLUSTER_MEMBERS_MAX: Final = 256

#: How often deliveries of a message of a cluster may fail before the broker dead-letters it: a
#: message that kills every member that gets it must end, but members are also killed for other
#: reasons, more often than the 20 times of a quorum queue's default.
CLUSTER_DELIVERIES_MAX: Final = 100

# -- HTTP on TCP -----------------------------------------------------------------------------------

#: Connections open at once: each holds 64 KiB to 512 KiB while its peer does not read.  Where the
#: system gives few descriptors, they are a quarter of those that connections may have.
HTTP_CONNECTIONS_MAX: Final = 1024

#: Requests of one user that are being answered, most of which wait at the end of a stream: half of
#: the connections, so that nobody takes all places.
HTTP_REQUESTS_PER_USER_MAX: Final = 512

#: Those of them that are not of streams: lists and changes, which hold memory while they last and
#: do not wait for anything.
HTTP_API_REQUESTS_PER_USER_MAX: Final = 64

#: How many heavy requests of one user are answered at once, those whose work grows with the number
#: of objects or messages (`management.rights`): sorted lists keep a row for each object, and
#: messages are held until they are sent.  Further ones wait; with four, a page that requests
#: several lists still gets them together.
HTTP_HEAVY_REQUESTS_PER_USER_MAX: Final = 4

#: How long a connection may be open without a whole request, how long the head of a request may
#: take from its first byte on (of the first request, from the connect on), and how long a peer may
#: read nothing of what was written to it; slower ones are cut off.
HTTP_IDLE_SECONDS_MAX: Final = 60
HTTP_HEAD_SECONDS_MAX: Final = 10
HTTP_STALL_SECONDS_MAX: Final = 60

#: A request's body, and how long it may take to come.
HTTP_BODY_BYTES_MAX: Final = 1024 * 1024
HTTP_BODY_SECONDS_MAX: Final = 30

#: Requests that are read and answered at once have this part of `memory_bytes_max` together, a user
#: half of it, for their bodies and for what their answers hold until they are sent; one more waits
#: for another time (503), unless there is none, or it is small.
REQUEST_SHARE: Final = 8
HTTP_BODY_SMALL_BYTES: Final = 65_536

#: The body of a form by which somebody logs in, who is not known when it is read: two AMQP short
#: strings, percent-encoded, fit twice.
HTTP_LOGIN_BYTES_MAX: Final = 4096

#: Sessions of the broker's page, each some 500 bytes, in all and of one user; and how long one may
#: last, and be unused (a page that is open asks every few seconds): RabbitMQ's 8 hours, and 1.
HTTP_SESSIONS_MAX: Final = 1024
HTTP_SESSIONS_PER_USER_MAX: Final = 32
HTTP_SESSION_SECONDS_MAX: Final = 28_800
HTTP_SESSION_IDLE_SECONDS_MAX: Final = 3600

#: The end of the log that is kept for readers over HTTP, in lines and characters of one (4 MB at
#: the very most, mostly 0.1); how many may read it as it grows, in all and of one user, and for how
#: long with one request.
LOG_LINES_KEPT: Final = 1000
LOG_LINE_CHARACTERS_MAX: Final = 1024
LOG_TAIL_READERS_MAX: Final = 16
LOG_TAIL_READERS_PER_USER_MAX: Final = 8
LOG_TAIL_SECONDS_MAX: Final = 3600

#: How many bytes of properties and bodies one answer to `get` or `browse` has; a larger message is
#: alone in its answer.
HTTP_MESSAGES_BYTES_MAX: Final = 4 * 1024 * 1024

#: How many steps a dry run returns: 60,000 queues took 0.1 s, in which nothing else was served.
DRY_RUN_STEPS_MAX: Final = 1_000

#: How long a request may wait for a message at the end of a stream.
HTTP_WAIT_MS_MAX: Final = 60_000

#: After so many bytes of chunks an answer ends, where nothing is said, and at most.
HTTP_CHUNKS_BYTES: Final = 16 * 1024 * 1024
HTTP_CHUNKS_BYTES_MAX: Final = 1024 * 1024 * 1024

#: A chunk is read and written in parts of this size: what an answer holds in memory.  A full block
#: of small messages is 0.4 MB and so goes in one (in two it costs the broker a quarter more).
HTTP_WRITE_BYTES_MAX: Final = 524_288

# -- metrics ---------------------------------------------------------------------------------------

#: Connections for Prometheus open at once: one is enough for a server that scrapes.  Where the
#: system gives few descriptors, they are a sixteenth of those that connections may have.
METRICS_CONNECTIONS_MAX: Final = 32

#: Queues or connections that a scrape looks at before the loop does something else: at most half a
#: millisecond of compiled code.  A queue that is empty takes 50 lines, one with messages and
#: consumers four times as many.
SCRAPE_SLICE: Final = 500

#: Queues and connections for which a total that is a millisecond old is told again, once for each
#: millisecond: who asks all the time takes no more than a small part of a core.
SCRAPE_OBJECTS_PER_MS: Final = 100

#: For how long (ms) the totals of so many queues and connections are told again in any case: half
#: of the time between two samples, so that one walk does for them and for a scrape every five
#: seconds.  RabbitMQ's own figures are up to five seconds old.
WALK_SHARED_MS: Final = 2_500
WALK_SHARED_OBJECTS_MIN: Final = 2_000

#: Answers with an entry for each object that are made at once: each holds its entries in memory.
SCRAPES_PER_OBJECT_MAX: Final = 2

#: Entries of each kind (queues, connections, channels, readers of streams) in such an answer: that
#: of a queue has thirteen lines of 100 bytes.
SCRAPE_OBJECTS_MAX: Final = 10_000

#: Rows of one page of a list, and characters of the name that it is filtered by: RabbitMQ's limits.
PAGE_ROWS_MAX: Final = 500
PAGE_FILTER_CHARACTERS_MAX: Final = 1024

#: Consumers that are shown with one queue or one channel, at once; the list of consumers has all.
CONSUMERS_SHOWN_MAX: Final = 1024

#: Columns that one list is sorted by.  Each row has a key of all of them while the list is made.
LIST_SORTS_MAX: Final = 8

#: Steps that a client's pattern may take on all names of one list: about a second of work, in
#: slices between which others are served.
LIST_PATTERN_STEPS_MAX: Final = 8_388_608

#: Queues whose rates, and whose histories, are kept while somebody looks at them: some 500 bytes,
#: and up to 16 KiB, each.
RATES_MAX: Final = 20_000
HISTORIES_MAX: Final = 1_000

#: A broker with up to so many queues is sampled even if nobody asks for rates, which takes 4 ms
#: every five seconds.
UNASKED_QUEUES_MAX: Final = 2_000

#: How long samples are kept, and taken, after somebody asked for them.
SAMPLES_KEPT_SECONDS: Final = 300

#: Points of one history in an answer, as in RabbitMQ.
SAMPLE_POINTS_MAX: Final = 500

#: How long pages of browsers get the same answer of overview and nodes (ms): a page asks every
#: other second, so that ten of them cost little more than one.
SHARED_ANSWER_MS_MAX: Final = 1_500

#: How many such answers are kept, of up to half a megabyte each: the page asks in five ways.
SHARED_ANSWERS_MAX: Final = 8

# -- backup ----------------------------------------------------------------------------------------

#: How long a client that makes a backup may say nothing before the broker removes files again: it
#: speaks every few seconds, and one that hangs must not fill the disk.
BACKUP_SILENCE_SECONDS_MAX: Final = 60

#: Backups that are made over HTTP at once: they are sent at one pace, and each holds a row for each
#: file of the data directory, some 700 bytes.
BACKUPS_MAX: Final = 2

#: A file is read and sent over HTTP in pieces of this size, between which the loop does other work.
BACKUP_PIECE_BYTES: Final = 131_072

#: How fast all backups over HTTP are sent together: at 3.3 s of a core for each GB over TLS (read,
#: encrypted and sent, measured) that is a tenth of a core, which clients of the broker do without.
BACKUP_BYTES_PER_SECOND_MAX: Final = 33_554_432

# -- spark -----------------------------------------------------------------------------------------

#: Messages that one Spark task reads at most, by default: about a second over AMQP. With
#: 100,000 tasks cost as much as rows: bulk reads had 0.45 of the rate from memory, not 0.86.
SPARK_PARTITION_RECORDS: Final = 500_000

#: What the events of a vhost may take on the disk; the oldest go first.
EVENT_STREAM_BYTES: Final = 1 << 30

#: Events that one turn of the broker may note; a turn that does more, as the expiry of a million
#: messages at once, must not fill the memory with what it says of itself.
EVENTS_PER_TURN_MAX: Final = 16_384

#: A file of a lake's table is closed at so many bytes of Arrow (Parquet makes a third of them); its
#: row groups hold so many rows, so that a reader skips by their statistics; and a task writes to so
#: many files at once: each buffers a row group.
LAKE_FILE_BYTES: Final = 512 * 1024 * 1024
LAKE_ROW_GROUP_ROWS: Final = 131_072
LAKE_FILES_OPEN_MAX: Final = 64

#: An Arrow batch is closed at either of these (measured in rows/s: 1,000 a batch 2.0 M, 10,000
#: 2.3 M, 50,000 2.7 M); one larger message makes a larger batch.
SPARK_BATCH_RECORDS: Final = 20_000
SPARK_BATCH_BYTES: Final = 16 * 1024 * 1024

#: Bytes of chunks that one request for a range of a stream asks for: a second's worth or less.
SPARK_ANSWER_BYTES: Final = 256 * 1024 * 1024

#: Messages that one task of a sink sends before their confirms: some ten syncs of the broker's.
SPARK_WRITE_WINDOW: Final = 16_384

#: What a sink hands to the socket at once: one piece is on its way while the next is encoded.
SPARK_WRITE_PIECE_RECORDS: Final = 4_096
SPARK_WRITE_PIECE_BYTES: Final = 1024 * 1024

#: What a task that may send again keeps until it is confirmed: large bodies fill it before the
#: window of messages does.
SPARK_WRITE_KEPT_BYTES: Final = 64 * 1024 * 1024

#: For so long is a broker asked again that cannot be reached: it may start after a crash with a
#: large journal, which takes seconds, or with its machine, which takes a minute or two.
SPARK_RETRY_MS: Final = 120_000

#: No confirm for so long, while the broker blocks nobody, fails a task.
SPARK_WRITE_TIMEOUT_MS: Final = 120_000

#: An abandoned attempt's staging queue goes after a day; the whole batch must be done before.
SPARK_WRITE_STAGING_MS: Final = 24 * 3600 * 1000

#: Results of commits that a file of the option `resultFile` keeps: days of a batch a minute in less
#: than a megabyte, which every commit writes anew.
SPARK_WRITE_RESULTS_MAX: Final = 4_096

#: Messages of a queue that the spool answers for beyond what Spark has asked for: when their bodies
#: are so large, no more is acked, and the broker keeps the rest.
SPARK_SPOOL_AHEAD_BYTES: Final = 256 * 1024 * 1024

#: Streams of one read: the driver holds a connection for each.
SPARK_STREAMS_MAX: Final = 1_000

#: The broker's list of streams, as JSON: some 100,000 names.
SPARK_LISTING_BYTES_MAX: Final = 64 * 1024 * 1024

#: Addresses that one `connect` tries in turn: each may take the whole time to connect.
CLIENT_ADDRESSES_MAX: Final = 64

#: Connections that a pool has to one address, unless the program says otherwise.
CLIENT_POOL_CONNECTIONS: Final = 8

#: How long one waits for a connection of a pool: longer is mostly one that was never returned.
CLIENT_POOL_WAIT_SECONDS: Final = 30

#: Who waits for one address of a pool; more cannot be served in time anyway.
CLIENT_POOL_WAITERS_MAX: Final = 10_000

#: After it a connection that nobody used is closed.
CLIENT_POOL_IDLE_SECONDS: Final = 300

#: After it an idle connection is asked whether it lives before it is lent.
CLIENT_POOL_CHECK_SECONDS: Final = 10

# -- the shell -------------------------------------------------------------------------------------

#: The largest answer of the HTTP API that a command reads: a list of 100,000 queues has some
#: 200 MB.  The server that answers may not be a broker.
CLI_ANSWER_BYTES_MAX: Final = 512 * 1024 * 1024

#: A line of `leveret shell`: a body of some size may be typed; larger ones are files.
SHELL_LINE_BYTES_MAX: Final = 1024 * 1024

#: Lines of the shell's history that the next start still has.
SHELL_HISTORY_LINES_MAX: Final = 1_000

#: Names that are offered for completion: nobody reads more.
SHELL_COMPLETIONS_MAX: Final = 1_000
