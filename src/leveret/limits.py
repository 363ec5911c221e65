"""The limits that a user can reach or set, and the limits that several modules share, with reasons.

A limit that only one module needs is in that module.  A name ends with its unit.
"""

from __future__ import annotations

from typing import Final

# -- wire ------------------------------------------------------------------------------------------

#: The size of a short string, whose length is one byte (AMQP 0-9-1 section 4.2.5.3).
SHORT_STRING_BYTES_MAX: Final = 255

#: The largest frame before tuning: the minimum of the specification (section 2.3.5).
FRAME_BYTES_MIN: Final = 4096

#: The frame size offered by default, as in RabbitMQ.
FRAME_BYTES_MAX: Final = 131_072

#: The bytes of a frame that are not payload (type, channel, size, end).  Like RabbitMQ, Leveret
#: tolerates a payload of `frame_max` bytes.
FRAME_OVERHEAD_BYTES: Final = 8

#: The maximum nesting of field tables; deeper tables only serve to exhaust the stack.
TABLE_DEPTH_MAX: Final = 32

#: Entries of one table, including the entries of tables and arrays in it.
TABLE_ENTRIES_MAX: Final = 4096

#: The record of one definition (a queue, a policy, a user, ...).  An AMQP frame contains at most
#: 128 KiB of arguments by default, and every checkpoint writes each definition again.
DEFINITION_BYTES_MAX: Final = 1024 * 1024

#: The largest body by default, as in RabbitMQ 3.10 (4.3: 16 MiB).  Real programs send 20 MB.
MESSAGE_BYTES_MAX: Final = 128 * 1024 * 1024

#: The divisor of `memory_bytes_max` for the largest message.  While a body is written to the
#: journal there is a second copy of it, and another in the output of each connection that receives
#: it.
MESSAGE_SHARE: Final = 8

#: Memory of the program itself: 62 MiB after the start, compiled.
PROGRAM_BYTES: Final = 64 * 1024 * 1024

#: The minimum number of threads for a broker: one for the event loop, four for files, two for
#: passwords, one for TLS, and some that resolve names and import rarely used modules.
THREADS_LEAST: Final = 16

# -- session ---------------------------------------------------------------------------------------

#: The input of a peer until its TLS handshake is done.  OpenSSL accepts a chain of 100 kB.
TLS_HANDSHAKE_BYTES_MAX: Final = 131_072

#: Records of a TLS handshake: a chain of 100 kB in the smallest fragments (RFC 6066: 512 bytes)
#: has 200.
TLS_HANDSHAKE_RECORDS_MAX: Final = 512

#: TLS records without content after the handshake: this many at once, and one more each second.  A
#: KeyUpdate costs 28 µs, and peers need one per several gigabytes.  Go's TLS accepts 16 in a row.
#: OpenSSL gets at most one record more than this at a time.
TLS_EMPTY_RECORDS_MAX: Final = 16

#: The time limit for a closed socket to linger, so that its peer can read the last output (like
#: nginx's `lingering_time`).
LINGER_SECONDS_MAX: Final = 30

#: A header of the PROXY protocol: 52 bytes of addresses, and some hundreds for further fields.
PROXY_HEADER_BYTES_MAX: Final = 4096

#: A file with certificates or a key.  A bundle of all public authorities takes 230 kB.
CERTIFICATE_FILE_BYTES_MAX: Final = 1024 * 1024

#: Certificates that are selected by the name that a client requests (SNI).
SNI_CERTIFICATES_MAX: Final = 1024

#: Open channels of a connection, as in RabbitMQ.  Their numbers may be 1 to 65,535.
CHANNELS_MAX: Final = 2047

#: The heartbeat offered by default.
HEARTBEAT_SECONDS: Final = 60

#: The time from connect to connection.open; slower peers (slowloris) are disconnected.
HANDSHAKE_SECONDS_MAX: Final = 10

#: The percentage of an opening's time limit at which the broker closes it, so that its peer notices
#: within the limit even if the event loop is busy.
OPENING_PERCENT: Final = 95

#: The size from which a body is a part of its own in the journal, without a copy to its buffer.
BODY_APART_BYTES: Final = 65_536

#: Unsent output of a connection; beyond it, its consumers get no deliveries until the peer reads.
OUTPUT_BYTES_HIGH: Final = 1024 * 1024

#: Unsent output of a connection; beyond it, its input is not read either, since replies need space.
OUTPUT_BYTES_MAX: Final = 4 * 1024 * 1024

#: Buffered input of a connection that waits for a sync; beyond it, its socket is not read.
INPUT_BYTES_HELD_MAX: Final = 262_144

#: The announced size of a HareMQ frame, with the limits of HareMQ's own programs.  The smallest
#: frame contains a name of one byte; the largest is 64 MiB long.
HAREMQ_FRAME_BYTES_MIN: Final = 10
HAREMQ_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024

#: The name of a HareMQ request with its package and a NUL.  The longest of HareMQ's own names is 31
#: bytes long.  Each answer repeats the package.
HAREMQ_NAME_BYTES_MAX: Final = 128

#: The frame of a HareMQ request other than a publish: the default size of an AMQP frame, for
#: arguments, and 4 KiB for ids and names.  It is decoded in one step, for clients without a login.
HAREMQ_REQUEST_BYTES_MAX: Final = 135_168

#: The fields of a longer HareMQ publish except its body: two ids, names and a message id.  The body
#: is processed in pieces, and the other fields are decoded in one step.
HAREMQ_LONG_FIELDS_BYTES_MAX: Final = 8192

#: The id of a HareMQ request or channel.  HareMQ's client generates ids of 155 characters, and each
#: answer repeats both.  A longer id ends the connection, because it cannot be answered.
HAREMQ_ID_BYTES_MAX: Final = 1024

#: Unacked deliveries of a HareMQ channel: the prefetch of its consumer, since the protocol has no
#: prefetch.
HAREMQ_UNACKED_MAX: Final = 65_536

#: Exchanges, and as many queues and bindings, in the answer to a HareMQ query.
HAREMQ_LISTED_MAX: Final = 1000

#: Cached routes of a connection, and cached names and addresses of events; a full cache is cleared.
ROUTES_CACHED_MAX: Final = 1024

#: Targets of all cached routes of one connection; a full cache is cleared.
ROUTE_TARGETS_CACHED_MAX: Final = 65_536

#: Consumers on one channel.
CONSUMERS_PER_CHANNEL_MAX: Final = 65_535

#: Consumers of one queue or stream, more than the possible connections.  A queue examines them in
#: turn for one that can take a message; if none of them can, this takes some 2 ms.
CONSUMERS_PER_QUEUE_MAX: Final = 65_535

#: Unacked deliveries of one channel, for consumers without a lower prefetch.
UNACKED_PER_CHANNEL_MAX: Final = 1_000_000

#: Messages that one transaction publishes, as in RabbitMQ 4.3 (`channel_tx_message_max`), and
#: deliveries that it settles; copies of its messages in queues; and the size of all its messages
#: except the largest, so that any message can be part of a transaction.  A commit is one journal
#: record, so it runs in one step: some 0.3 µs per message and 0.2 to 0.5 µs per copy.
TX_MESSAGES_MAX: Final = 10_000
TX_COPIES_MAX: Final = 16_384
TX_BYTES_MAX: Final = 64 * 1024 * 1024

#: The estimated cost of a commit, counted while the transaction is open, in units of some 0.7 µs.
#: A commit at all of the above limits would take twice as long.
TX_COST_MAX: Final = 24_576

#: Commits of staged batches in one transaction.  Each is a record, which takes some 30 µs.
#: Together they name at most `STAGING_QUEUES_PER_COMMIT_MAX` queues.
TX_COMMITS_MAX: Final = 128

#: The size of the messages below `BODY_APART_BYTES` in one transaction.  They are copied into the
#: record and into streams, which takes 1 to 3 ms per MiB; larger bodies are written without a copy.
TX_SMALL_BYTES_MAX: Final = 8 * 1024 * 1024

#: The size of incomplete contents and uncommitted transactions of a connection; beyond it, the
#: connection is closed (506).
ASSEMBLING_BYTES_MAX: Final = 512 * 1024 * 1024

#: Bytes above the memory watermark, but at most half of the watermark, that contents and
#: transactions begun before the alarm may still use; beyond it, their connections are closed (506).
#: When they could use as much as the watermark, 40 clients with the largest messages
#: (`MESSAGE_SHARE`) got a broker with a watermark of 160 MiB killed in a control group of 400 MiB.
#: With half of the watermark, memory was left.
OVERFULL_BYTES_MAX: Final = 512 * 1024 * 1024

#: Open client connections, logged in or not; fewer if the system allows fewer descriptors.  One
#: more replaces the oldest connection that has not logged in, or is dropped.
CONNECTIONS_MAX: Final = 50_000

#: Descriptors reserved for the store: the files and directories that it may have open at the same
#: time (a journal file, two files of chunks, a checkpoint's snapshot and segment, chunks that four
#: threads read, the ballast, a directory that is synced), and half as many more.
STORE_FILES_MAX: Final = 18

#: Open connections on the Unix socket, enough for a script that runs many commands in parallel.
#: One more replaces a connection without a request.
OPERATOR_CONNECTIONS_MAX: Final = 256

#: Passwords that wait for verification: of one user from one address, from one address, and of each
#: kind (known pairs, known addresses, others).  If one more arrives, the broker rejects one of
#: them.  Even a single thread verifies all of them before their clients give up.
LOGINS_WAITING_PER_USER_MAX: Final = 16
LOGINS_WAITING_PER_NETWORK_MAX: Final = 64
LOGINS_WAITING_MAX: Final = 256

# -- broker ----------------------------------------------------------------------------------------

#: Messages that a loop processes before other work runs, since compiled code does not release the
#: GIL meanwhile.
SLICE_MESSAGES: Final = 4096

#: Bytes of a message copied to the output for a cost of 1 (`broker/scheduler/costs.py`); 60 kB take
#: some 40 µs.
CONTENT_BYTES_PER_COST: Final = 2048

#: The size of a message from which freeing it has a cost.
LARGE_MESSAGE_BYTES: Final = 1 << 20

#: Bytes for a cost of 1: of input that is not a complete message yet; and of methods and
#: properties, which are decoded entry by entry.
INPUT_BYTES_PER_COST: Final = 256
TABLE_BYTES_PER_COST: Final = 16

#: Queues and exchanges of one vhost, and bindings from one exchange.
QUEUES_PER_VHOST_MAX: Final = 1_000_000
EXCHANGES_PER_VHOST_MAX: Final = 100_000
BINDINGS_PER_EXCHANGE_MAX: Final = 1_000_000

#: The default limits of users on a data directory created by this release or a later one (global
#: parameter `default_user_limits`); a user's own limits take precedence.  No program reaches them
#: by design.  A program that leaks or attacks reaches them before it affects other users.
#: Queues: they take two thirds of a gigabyte of memory, and each checkpoint writes them.
QUEUES_PER_USER: Final = 250_000
#: Bindings: the maximum of one exchange; they take half a gigabyte of memory.
BINDINGS_PER_USER: Final = 1_000_000
#: Connections: four fifths of `CONNECTIONS_MAX`, so that no user takes all slots.
CONNECTIONS_PER_USER: Final = 40_000
#: Messages: 10,000 per second for a day without a consumer.
MESSAGES_PER_USER: Final = 1_000_000_000
#: Bytes of messages, in percent of the file system with the data directory.  The journal,
#: checkpoints and other users need the rest before the disk alarm blocks all publishers.
MESSAGE_BYTES_PER_USER_PERCENT: Final = 80

#: Users, the tags of one user, and the topic permissions of one user in one vhost.
USERS_MAX: Final = 100_000
USER_TAGS_MAX: Final = 64
TOPIC_PERMISSIONS_MAX: Final = 1024

#: A password hash; an Argon2 hash with a long salt takes some 150 bytes.
PASSWORD_HASH_BYTES_MAX: Final = 1024

#: Vhosts of a broker.
VHOSTS_MAX: Final = 10_000

#: The cost of verifying an Argon2 hash of another broker: memory in KiB, and rounds.
ARGON2_KIB_MAX: Final = 1_048_576
ARGON2_ROUNDS_MAX: Final = 64

#: Tags of one vhost, and the bytes of its description.
VHOST_TAGS_MAX: Final = 64
VHOST_DESCRIPTION_BYTES_MAX: Final = 4096

#: Runtime parameters of all vhosts, and global parameters; and the size of a parameter's value.
PARAMETERS_MAX: Final = 4096
PARAMETER_BYTES_MAX: Final = 65_536

#: Policies of one vhost, and its operator policies.  Each new queue is matched against all of them.
POLICIES_PER_VHOST_MAX: Final = 4096

#: Routing keys in the headers CC and BCC of one message.  Each costs as much as a publish, all in
#: one step.  Public programs and reports use a handful.
COPY_KEYS_MAX: Final = 256

#: Bindings of a queue to exchanges that choose one binding for each message.  When the queue is
#: deleted, they are removed in one step, some µs each, so that no message is lost because its
#: binding is being removed.
CHOICES_PER_QUEUE_MAX: Final = 1024

#: The units of routing one message, in one step of some 0.1 µs per unit: the bindings that match
#: it, by all its keys and in all exchanges that it reaches, and the steps to find them, such as
#: positions in patterns of topic bindings (two units each) and conditions on headers.  The checks
#: of CC and BCC keys against topic permissions count, too: 8 to 20 positions in patterns for a key
#: if the pattern matches its beginning.  A fan-out to 100,000 queues stays below this limit.
ROUTING_LOOKS_MAX: Final = 131_072

#: Queues that get a message in one step.  A larger fan-out is divided into parts of at least this
#: size, between which other work runs.
FAN_OUT_COPIES: Final = 2048

#: Words in a topic key, which limit the cost of matching (a short string has at most 256 words).
TOPIC_WORDS_MAX: Final = 256

#: Points per unit of weight on the ring of a consistent-hash exchange.  With weights of 1, the
#: worst of 4 queues is usually 11 % off its share, and the worst of 16 queues 19 %.  Another number
#: would move values of existing exchanges to other queues, past messages that wait in the current
#: queues.
RING_POINTS_PER_WEIGHT: Final = 100

#: The weight of one binding of a consistent-hash exchange, and of all its bindings together.  A
#: point takes 44 bytes.
RING_WEIGHT_MAX: Final = 1000
RING_WEIGHTS_MAX: Final = 10_000

#: Messages that a recent-history exchange stores, by default (as in RabbitMQ's plugin) and at most.
#: A bind delivers all of them in one step.
HISTORY_MESSAGES: Final = 20
HISTORY_MESSAGES_MAX: Final = 4096

#: Values, or routing key patterns, in the filter of one consumer of a stream; and words after the
#: first `#` in all these patterns.  Each word of a routing key may be compared with each of them
#: (0.5 µs; a key has at most 128 words).
STREAM_FILTER_VALUES_MAX: Final = 256
STREAM_FILTER_WORDS_MAX: Final = 256

#: Consumer names under which a stream stores offsets.  Each takes space in every checkpoint.
STREAM_OFFSET_NAMES_MAX: Final = 40_000

#: The names that one user may own in a stream (user limit `max-stream-consumers`): a quarter, so
#: that the unused names of one user do not lock out other users.
STREAM_OFFSET_NAMES_PER_USER_MAX: Final = 10_000

#: Partitions of one super stream.  Each is a stream, and all are created in one step, some 40 µs
#: each.  Public examples have 3 to 10; RabbitMQ allows 1,000.
SUPER_STREAM_PARTITIONS_MAX: Final = 256
#: The maximum of earlier releases.  Such a super stream still works, and can be redeclared.
SUPER_STREAM_PARTITIONS_KEPT_MAX: Final = 1024

#: The record of all definitions that one declare of a super stream creates, which takes some 12 ms
#: to write.  1 KiB for each of 256 partitions is three times the need.
SUPER_STREAM_BYTES_MAX: Final = 262_144

#: The longest `x-message-ttl` and `x-expires`: ten years of 365 days, as in RabbitMQ.  Celery's
#: delayed delivery declares a queue with 2^27 s, which is four years.
TTL_MS_MAX: Final = 315_360_000_000

#: The longest delay of a delayed message: ten years, including leap days.
DELAY_MS_MAX: Final = 315_619_200_000

#: A regex of a policy or a permission: its length, the nesting of its groups, the count of a
#: repeat, and the number of its compiled states.
PATTERN_CHARACTERS_MAX: Final = 1024
PATTERN_DEPTH_MAX: Final = 50
PATTERN_REPEATS_MAX: Final = 1000
PATTERN_STATES_MAX: Final = 2000

#: The steps of one match, some 0.1 µs each, after which it fails.  They allow 250 simultaneous
#: positions in the pattern for each character of the longest name; usual patterns have two or
#: three.
PATTERN_LOOKS_MAX: Final = 65_536

#: Copies that dead-lettering may make by itself (after expiry, or at length limits) of a message
#: that a client published or rejected: a fan-out to this many queues, or a chain of them.  One
#: small message can cost as much as this many publishes.
DEAD_LETTER_COPIES_MAX: Final = 1024

#: The entries in a dead letter's `x-death`, newest first, and their size.  Each dead-lettering
#: reads and writes all of them, and a delivery has them in one frame.
DEATHS_LISTED_MAX: Final = 128
DEATHS_BYTES_MAX: Final = 32_768

#: Dead letters that wait for routing; beyond it, no more messages expire.
LETTERS_WAITING_MAX: Final = 4096

#: The default delivery limit of quorum queues, as in RabbitMQ 4.3.
DELIVERY_LIMIT_QUORUM: Final = 20

#: The longest expiration of a message, in ms: ten years, as in RabbitMQ.
EXPIRATION_MS_MAX: Final = 315_360_000_000

#: Keys that a queue with a deduplication header remembers, by default and at most.
DEDUPLICATION_KEYS: Final = 1000
DEDUPLICATION_KEYS_MAX: Final = 1_000_000

#: Publishers whose highest publishing id a queue stores (each takes some 200 bytes).  One more is
#: refused until one of them has been idle for long enough, because forgetting a publisher too early
#: could accept a message twice.
PUBLISHERS_PER_QUEUE_MAX: Final = 40_000

#: The publishers that one user may own in a queue (user limit `max-publishers`): a quarter, so that
#: the unused publishers of one user do not lock out other users.
PUBLISHERS_PER_USER_MAX: Final = 10_000

#: The idle time after which the broker forgets a publisher or a sink: a week, so that a job that
#: failed on a Friday can be restarted on a Monday.
PUBLISHER_EXPIRY_MS: Final = 604_800_000

#: The same for a name that a client's connection, or a save of a table, generated.  No later
#: connection uses it, but after a loss the client may try to reconnect for this time.
CLIENT_PUBLISHER_EXPIRY_MS: Final = 3_600_000

#: The time for which the broker remembers the progress of a client's publishes after the loss of
#: the connection: as long as the client may try to reconnect.
PUBLISH_SESSION_EXPIRY_MS: Final = 3_600_000

#: Sinks of a vhost (each takes some 600 bytes): one for each streaming query that writes to it, of
#: which a Spark cluster runs hundreds.  One more is refused until one of them has been idle for
#: long enough.
SINKS_PER_VHOST_MAX: Final = 4_000

#: The sinks that one user may own in a vhost (user limit `max-sinks`): a quarter, so that the
#: unused sinks of one user do not lock out other users.
SINKS_PER_USER_MAX: Final = 1_000

#: Staging queues in one commit, one for each task that publishes a part of the batch.  The commit
#: is one record with the ids of all of them, which `TABLE_ENTRIES_MAX` limits.
STAGING_QUEUES_PER_COMMIT_MAX: Final = 4000

#: The body of a commit: the maximum number of queues with the longest names, as JSON.
COMMIT_BYTES_MAX: Final = 2 * 1024 * 1024

#: Committed batches of one sink that are not released yet; a further commit is refused.
RELEASES_PER_SINK_MAX: Final = 64

#: Acked messages that a queue retains in memory if only a time is set.
RETAINED_BYTES_MAX: Final = 256 * 1024 * 1024

# -- store -----------------------------------------------------------------------------------------

#: Unsynced bytes of the journal; beyond it, publishers' sockets are not read.
UNSYNCED_BYTES_MAX: Final = 8 * 1024 * 1024

#: The free disk space that publishers must leave (RabbitMQ: 50 MB), several times the size of the
#: messages that can be accepted before publishers are blocked.
DISK_FREE_BYTES_MIN: Final = 50_000_000

#: The file that is deleted to make space for acks, deletes and checkpoints when other programs have
#: filled the disk: twice the unsynced bytes.
BALLAST_BYTES: Final = 16 * 1024 * 1024

#: The size at which a journal file is closed; a single larger record makes the file larger.
JOURNAL_FILE_BYTES: Final = 64 * 1024 * 1024

#: The size of the journal that starts a checkpoint.
JOURNAL_BYTES_MAX: Final = 512 * 1024 * 1024

#: The size and the number of messages at which a chunk is closed; a single larger message makes the
#: chunk larger.
CHUNK_BYTES_MAX: Final = 262_144
CHUNK_RECORDS_MAX: Final = 4096

#: A batch in one publish has at least so many messages, or so many bytes: it becomes a chunk of its
#: own, and many small chunks take memory and slow down the readers of a stream.
BATCH_MESSAGES_MIN: Final = 256
BATCH_BYTES_MIN: Final = 65_536

#: Chunks that queues write when their memory is full: the bytes that are written and synced
#: together, and the bytes that may wait; beyond them, publishers' sockets are not read.
SPILL_BATCH_BYTES: Final = 4 * 1024 * 1024
SPILL_BYTES_MAX: Final = 8 * 1024 * 1024

#: Memory that the waiting messages of one queue may use before new messages are written to disk;
#: and the overhead of a message in addition to its size.
QUEUE_WINDOW_BYTES: Final = 16 * 1024 * 1024
MESSAGE_OVERHEAD_BYTES: Final = 200

#: The number of messages from which a segment file is compacted, and the percentage of live
#: messages below which it is.
COMPACT_RECORDS_MIN: Final = 2000
COMPACT_LIVE_PERCENT: Final = 50

#: Chunks of a deep queue that are read ahead of its consumers, and the bytes after which no further
#: chunk is read, since a chunk may be one message of 128 MiB.
PAGES_AHEAD: Final = 3
PAGES_AHEAD_BYTES: Final = 16 * 1024 * 1024

#: The cache of stream blocks that are also in files: the newest blocks, and blocks read from files.
#: It has space for 200 blocks of large messages, or 85 blocks of messages with 100 bytes.
STREAM_CACHE_BYTES_MAX: Final = 64 * 1024 * 1024

# -- client ----------------------------------------------------------------------------------------

#: Received messages that the application has not taken yet, unless a single message is larger.
#: Beyond it, the connection ends with an error, so that the process does not run out of memory.
#: The client cannot always pause reading, because replies and confirms follow the messages.
CLIENT_INPUT_BYTES_MAX: Final = 128 * 1024 * 1024

#: The overhead of a received message in addition to its body: objects and property bytes.
CLIENT_MESSAGE_OVERHEAD_BYTES: Final = 512

#: The size of buffered output at which it is sent, even without another reason.
CLIENT_OUTPUT_BYTES_HIGH: Final = 65_536

#: Unsent bytes while the broker does not read; beyond it, a publish that must not wait fails.
CLIENT_OUTPUT_BYTES_MAX: Final = 64 * 1024 * 1024

#: The largest body that a client accepts: the maximum of RabbitMQ's own setting.
CLIENT_MESSAGE_BYTES_MAX: Final = 512 * 1024 * 1024

#: Frames of unconfirmed messages that a client stores to send them again after a lost connection;
#: beyond it, a publish that must not wait fails.
CLIENT_UNCONFIRMED_BYTES_MAX: Final = 128 * 1024 * 1024

#: Partitions of a consumer cluster.  Each is a queue with a consumer of every member.  The sum of
#: their weights stays below `RING_WEIGHTS_MAX`.
CLUSTER_PARTITIONS_MAX: Final = 256

#: Numbered members of a consumer cluster; more members than partitions have no work.
CLUSTER_MEMBERS_MAX: Final = 256

#: The delivery limit of a cluster's messages, after which the broker dead-letters a message that
#: kills every member.  It is higher than a quorum queue's default of 20, because members are also
#: killed for other reasons.
CLUSTER_DELIVERIES_MAX: Final = 100

# -- HTTP on TCP -----------------------------------------------------------------------------------

#: Open connections; each uses 64 KiB to 512 KiB while its peer does not read.  If the system allows
#: few descriptors, the limit is a quarter of those for connections.
HTTP_CONNECTIONS_MAX: Final = 1024

#: Requests of one user in progress, most of which wait at the end of a stream: half of the
#: connections, so that no user takes all of them.
HTTP_REQUESTS_PER_USER_MAX: Final = 512

#: Requests of one user in progress that do not read streams: lists and changes, which use memory
#: until they end.
HTTP_API_REQUESTS_PER_USER_MAX: Final = 64

#: Heavy requests of one user in progress, whose work grows with the number of objects or messages
#: (`management.rights`): sorted lists need a row for each object, and messages are in memory until
#: they are sent.  Further heavy requests wait.  Four are enough for a page that requests several
#: lists in parallel.
HTTP_HEAVY_REQUESTS_PER_USER_MAX: Final = 4

#: The time limits for a connection without a complete request; for the head of a request, from its
#: first byte (for the first request, from the connect); and for output that the peer does not read.
#: Slower peers are disconnected.
HTTP_IDLE_SECONDS_MAX: Final = 60
HTTP_HEAD_SECONDS_MAX: Final = 10
HTTP_STALL_SECONDS_MAX: Final = 60

#: The body of a request, and the time limit for its arrival.
HTTP_BODY_BYTES_MAX: Final = 1024 * 1024
HTTP_BODY_SECONDS_MAX: Final = 30

#: The divisor of `memory_bytes_max` for the memory that all concurrent requests share, for their
#: bodies and the unsent parts of their answers.  A user may use half of it.  One more request is
#: refused (503), unless it is the only one, or small.
REQUEST_SHARE: Final = 8

#: The body of a login form, which is read before the sender is known: twice the size of two
#: percent-encoded short strings of AMQP.
HTTP_LOGIN_BYTES_MAX: Final = 4096

#: Sessions of the broker's page, some 500 bytes each, in total and of one user; the duration of a
#: session, 8 hours as in RabbitMQ; and its idle time, 1 hour (an open page sends a request every
#: few seconds).
HTTP_SESSIONS_MAX: Final = 1024
HTTP_SESSIONS_PER_USER_MAX: Final = 32
HTTP_SESSION_SECONDS_MAX: Final = 28_800
HTTP_SESSION_IDLE_SECONDS_MAX: Final = 3600

#: Readers that follow the log over HTTP, in total and of one user, and the duration of one request.
LOG_TAIL_READERS_MAX: Final = 16
LOG_TAIL_READERS_PER_USER_MAX: Final = 8
LOG_TAIL_SECONDS_MAX: Final = 3600

#: Properties and bodies in one answer to `get` or `browse`; a larger message is alone in its
#: answer.
HTTP_MESSAGES_BYTES_MAX: Final = 4 * 1024 * 1024

#: Steps that a dry run returns.  For 60,000 queues it took 0.1 s, during which no other work ran.
DRY_RUN_STEPS_MAX: Final = 1_000

#: Reports of Spark queries, each of one run over one stream, in the whole broker and of one user
#: (five queries over a thousand streams).  Beyond it, the user's report without news for the
#: longest time is deleted.  Finding the last runs among 10,000 of one stream takes 10 ms.
STREAM_QUERIES_MAX: Final = 10_000
STREAM_QUERIES_PER_USER_MAX: Final = 5_000

#: The time for which a query without new reports is shown: long enough for a job that runs every
#: half an hour, and for users to see the growing lag of a query that died.
STREAM_QUERY_SILENCE_MS: Final = 3_600_000

#: The characters of a query's name that are stored; Spark does not limit names.
STREAM_QUERY_NAME_CHARACTERS_MAX: Final = 128

#: The time for which a request may wait for a message at the end of a stream.
HTTP_WAIT_MS_MAX: Final = 60_000

#: The size of the chunks after which an answer ends, by default and at most.
HTTP_CHUNKS_BYTES: Final = 16 * 1024 * 1024
HTTP_CHUNKS_BYTES_MAX: Final = 1024 * 1024 * 1024

#: The size of the parts in which a chunk is read and written; an answer has one in memory.  A full
#: block of small messages takes 0.4 MB, and so is one part (two parts cost the broker a quarter
#: more).
HTTP_WRITE_BYTES_MAX: Final = 524_288

# -- metrics ---------------------------------------------------------------------------------------

#: Open connections for Prometheus; a server that scrapes needs one.  If the system allows few
#: descriptors, the limit is a sixteenth of those for connections.
METRICS_CONNECTIONS_MAX: Final = 32

#: Concurrent answers with an entry for each object, which have all their entries in memory.
SCRAPES_PER_OBJECT_MAX: Final = 2

#: Entries of each kind (queues, connections, channels, readers of streams) in such an answer.  A
#: queue's entry has thirteen lines of 100 bytes.
SCRAPE_OBJECTS_MAX: Final = 10_000

#: Rows of one page of a list, and characters of the name filter, as in RabbitMQ.
PAGE_ROWS_MAX: Final = 500
PAGE_FILTER_CHARACTERS_MAX: Final = 1024

#: Consumers shown with one queue or one channel; the list of consumers shows all.
CONSUMERS_SHOWN_MAX: Final = 1024

#: Columns by which a list is sorted.  During the sort, each row has a key of all these columns.
LIST_SORTS_MAX: Final = 8

#: Steps of a client's pattern on all names of one list: about a second of work, in slices between
#: which other work runs.
LIST_PATTERN_STEPS_MAX: Final = 8_388_608

#: Queues whose rates are sampled while a client requests them, some 500 bytes each.
RATES_MAX: Final = 20_000

#: Points of one history in an answer, as in RabbitMQ.
SAMPLE_POINTS_MAX: Final = 500

# -- backup ----------------------------------------------------------------------------------------

#: The time without a request of a client that makes a backup, after which the broker removes files
#: again.  Such a client sends a request every few seconds, and one that hangs must not fill the
#: disk.
BACKUP_SILENCE_SECONDS_MAX: Final = 60

#: Concurrent backups over HTTP.  They share one rate, and each needs some 700 bytes for each file
#: of the data directory.
BACKUPS_MAX: Final = 2

# -- spark -----------------------------------------------------------------------------------------

#: The maximum number of messages that one Spark task reads, by default: about a second over AMQP.
#: With 100,000, tasks cost as much as rows: bulk reads reached 0.45 of the rate of reads from
#: memory, instead of 0.86.
SPARK_PARTITION_RECORDS: Final = 500_000

#: The disk space for the events of a vhost; the oldest events are removed first.
EVENT_STREAM_BYTES: Final = 1 << 30

#: The rows and the size at which an Arrow batch is closed; a single larger message makes it larger.
#: Measured: 2.0 M rows/s with 1,000 rows per batch, 2.3 M with 10,000, 2.7 M with 50,000.
SPARK_BATCH_RECORDS: Final = 20_000
SPARK_BATCH_BYTES: Final = 16 * 1024 * 1024

#: Unconfirmed messages of one task of a sink: some ten syncs of the broker.
SPARK_WRITE_WINDOW: Final = 16_384

#: The time for which a task tries to reach a broker.  The broker may be starting after a crash with
#: a large journal, which takes seconds, or with its machine, which takes a minute or two.
SPARK_RETRY_MS: Final = 120_000

#: The time without a confirm after which a task fails, unless the broker blocks publishers.
SPARK_WRITE_TIMEOUT_MS: Final = 120_000

#: The time after which the staging queue of an abandoned attempt expires; a batch must be committed
#: earlier.
SPARK_WRITE_STAGING_MS: Final = 24 * 3600 * 1000

#: Streams of one read; the driver has a connection for each of them.
SPARK_STREAMS_MAX: Final = 1_000

#: The broker's list of streams, as JSON: some 100,000 names.
SPARK_LISTING_BYTES_MAX: Final = 64 * 1024 * 1024

#: Addresses that one `connect` tries in turn; each may take the whole connect timeout.
CLIENT_ADDRESSES_MAX: Final = 64

#: Connections of a pool to one address, by default.
CLIENT_POOL_CONNECTIONS: Final = 8

#: The time limit for getting a connection from a pool.  A longer wait usually means that a
#: connection was not returned.
CLIENT_POOL_WAIT_SECONDS: Final = 30

#: The idle time after which a connection of a pool is closed.
CLIENT_POOL_IDLE_SECONDS: Final = 300

#: The idle time after which a connection of a pool is checked before it is used.
CLIENT_POOL_CHECK_SECONDS: Final = 10

# -- the shell -------------------------------------------------------------------------------------

#: A line of `leveret shell`, long enough for a typed body; larger bodies come from files.
SHELL_LINE_BYTES_MAX: Final = 1024 * 1024
