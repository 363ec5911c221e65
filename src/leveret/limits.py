"""The limits that a user can meet or set, and those that several modules share.

Each has its reason.  A limit that only one module needs is in that module.

Units come last in each name.
"""

from __future__ import annotations

from typing import Final

# -- wire ------------------------------------------------------------------------------------------

#: A short string's length is one byte (AMQP 0-9-1 section 4.2.5.3).
SHORT_STRING_BYTES_MAX: Final = 255

#: The largest frame before tuning: the specification's minimum (section 2.3.5).
FRAME_BYTES_MIN: Final = 4096

#: The frame size offered by default, as in RabbitMQ.
FRAME_BYTES_MAX: Final = 131_072

#: The bytes of a frame that are not payload (type, channel, size, end).  RabbitMQ tolerates a
#: payload of `frame_max`, and so does Leveret.
FRAME_OVERHEAD_BYTES: Final = 8

#: The maximum nesting of field tables: deeper ones only serve to exhaust a stack.
TABLE_DEPTH_MAX: Final = 32

#: Entries in one table, including the tables and arrays in it.
TABLE_ENTRIES_MAX: Final = 4096

#: The record of one definition (a queue, a policy, a user, ...): a frame of AMQP carries 128 KiB of
#: arguments by default, and every checkpoint writes each definition again.
DEFINITION_BYTES_MAX: Final = 1024 * 1024

#: The largest body by default, as in RabbitMQ 3.10 (4.3: 16 MiB): real programs send 20 MB.
MESSAGE_BYTES_MAX: Final = 128 * 1024 * 1024

#: A message may take this fraction of `memory_bytes_max`.  A broker has a second copy of a body
#: while it writes it to the journal, and another in the output of each connection that receives it.
MESSAGE_SHARE: Final = 8

#: Memory of the program itself: 62 MiB after the start, compiled.
PROGRAM_BYTES: Final = 64 * 1024 * 1024

#: The minimum number of threads for a broker: the event loop's, four for files, two for passwords,
#: one for TLS, and some that resolve names and import rarely used modules.
THREADS_LEAST: Final = 16

# -- session ---------------------------------------------------------------------------------------

#: The input of a peer before its TLS handshake is done.  OpenSSL accepts a chain of 100 kB.
TLS_HANDSHAKE_BYTES_MAX: Final = 131_072

#: Records of a TLS handshake: a chain of 100 kB in the smallest fragments (RFC 6066: 512 bytes)
#: has 200.
TLS_HANDSHAKE_RECORDS_MAX: Final = 512

#: Records without content that a peer may send after its handshake: this many at once, and one more
#: each second.  A KeyUpdate costs 28 µs, and peers need one in gigabytes.  Go's TLS accepts 16 in a
#: row.  OpenSSL gets at most one record more than this at a time.
TLS_EMPTY_RECORDS_MAX: Final = 16

#: How long a closed socket may linger, so that its peer can read the last output (nginx's
#: `lingering_time`).
LINGER_SECONDS_MAX: Final = 30

#: A header of the PROXY protocol; its addresses take 52 bytes, and further fields some hundreds.
PROXY_HEADER_BYTES_MAX: Final = 4096

#: A file with certificates or a key; a bundle of all public authorities has 230 kB.
CERTIFICATE_FILE_BYTES_MAX: Final = 1024 * 1024

#: Certificates chosen by the name that a client requests.
SNI_CERTIFICATES_MAX: Final = 1024

#: Open channels of a connection, as RabbitMQ offers; the numbers may be any of 65,535.
CHANNELS_MAX: Final = 2047

#: The heartbeat offered by default.
HEARTBEAT_SECONDS: Final = 60

#: From the connect to connection.open; slower peers are cut off (slowloris).
HANDSHAKE_SECONDS_MAX: Final = 10

#: The percentage of an opening's time limit at which the broker closes it, so that its peer notices
#: within the limit even if the event loop is busy.
OPENING_PERCENT: Final = 95

#: A body of this size or more goes to the transport directly, not through the writer.
BODY_APART_BYTES: Final = 65_536

#: Output of one connection beyond which its consumers get no more deliveries until the peer reads.
OUTPUT_BYTES_HIGH: Final = 1024 * 1024

#: Output of one connection beyond which its input is not read either: replies need room too.
OUTPUT_BYTES_MAX: Final = 4 * 1024 * 1024

#: Input kept while a connection waits for a sync, beyond which its socket is not read.
INPUT_BYTES_HELD_MAX: Final = 262_144

#: The announced size of a frame of HareMQ's protocol, with the limits of its own programs: the
#: smallest contains a name of one byte, the largest is 64 MiB.
HAREMQ_FRAME_BYTES_MIN: Final = 10
HAREMQ_FRAME_BYTES_MAX: Final = 64 * 1024 * 1024

#: The name of a request with its package and a NUL; the longest of HareMQ's own has 31 bytes.  Each
#: answer repeats the package.
HAREMQ_NAME_BYTES_MAX: Final = 128

#: The frame of any request except a publish: the default size of an AMQP frame, for arguments, and
#: 4 KiB for ids and names.  They are decoded at once, for clients that have not logged in.
HAREMQ_REQUEST_BYTES_MAX: Final = 135_168

#: The parts of a longer publish except its body: two ids, names and a message id.  The body is
#: taken piece by piece, and the other fields are decoded at once.
HAREMQ_LONG_FIELDS_BYTES_MAX: Final = 8192

#: A request's and a channel's id of HareMQ: its client makes ids of 155 characters, and each answer
#: repeats both; a longer one ends the connection, because it cannot be answered.
HAREMQ_ID_BYTES_MAX: Final = 1024

#: Unacked deliveries of one HareMQ channel: its protocol has no prefetch, so this is the prefetch
#: of its consumers.
HAREMQ_UNACKED_MAX: Final = 65_536

#: Exchanges, queues and bindings, each, in the answer to a HareMQ query.
HAREMQ_LISTED_MAX: Final = 1000

#: Cached routes per connection, and cached names and addresses of events; a full cache is cleared.
ROUTES_CACHED_MAX: Final = 1024

#: Targets of all cached routes of one connection; a full cache is cleared.
ROUTE_TARGETS_CACHED_MAX: Final = 65_536

#: Consumers on one channel.
CONSUMERS_PER_CHANNEL_MAX: Final = 65_535

#: Consumers of one queue or stream, more than the possible connections: a queue asks them in turn
#: which one can take a message, and needs some 2 ms to find that none of them can.
CONSUMERS_PER_QUEUE_MAX: Final = 65_535

#: Unacked deliveries of one channel; a prefetch limits them earlier.
UNACKED_PER_CHANNEL_MAX: Final = 1_000_000

#: Messages that one transaction publishes, as in RabbitMQ 4.3 (`channel_tx_message_max`), and as
#: many that it settles; their copies in queues; and the bytes of all except the largest: any
#: message that can be published may be part of a transaction.  A commit is one record of the
#: journal and so runs in one step: some 0.3 µs a message and 0.2 to 0.5 µs a copy.
TX_MESSAGES_MAX: Final = 10_000
TX_COPIES_MAX: Final = 16_384
TX_BYTES_MAX: Final = 64 * 1024 * 1024

#: The estimated cost of a commit, counted while the transaction is open: some 0.7 µs per unit.
#: With all of the above limits reached, it would take twice as long.
TX_COST_MAX: Final = 24_576

#: Commits of staged batches in one transaction: each is a record of some 30 µs.  Together they name
#: at most `STAGING_QUEUES_PER_COMMIT_MAX` queues.
TX_COMMITS_MAX: Final = 128

#: The part of these bytes in messages below `BODY_APART_BYTES`.  They are copied into the record
#: and into streams, which takes 1 to 3 ms per MiB, while a large body is written without a copy.
TX_SMALL_BYTES_MAX: Final = 8 * 1024 * 1024

#: Bytes of incomplete contents and uncommitted transactions of one connection; beyond it the
#: connection is closed (506).
ASSEMBLING_BYTES_MAX: Final = 512 * 1024 * 1024

#: Bytes above the memory watermark that contents and transactions begun before the alarm may still
#: use, but at most half of the watermark; beyond it their connections are closed (506).
#: With as much as the watermark itself, 40 clients with messages of `MESSAGE_SHARE` got a broker
#: with a watermark of 160 MiB killed in a control group of 400 MiB; with half of it, room was left.
OVERFULL_BYTES_MAX: Final = 512 * 1024 * 1024

#: Open client connections, logged in or not, lower if the system gives fewer descriptors; one more
#: replaces the oldest that has not logged in, or is dropped.
CONNECTIONS_MAX: Final = 50_000

#: Descriptors reserved for the store: the files and directories that it may open at once (a journal
#: file, two files of chunks, a checkpoint's snapshot and segment, chunks that four threads read,
#: the ballast, a directory that is synced), and half as many again.
STORE_FILES_MAX: Final = 18

#: Open connections on the Unix socket: enough for a script that runs many commands at a time.  One
#: more replaces a connection without a request.
OPERATOR_CONNECTIONS_MAX: Final = 256

#: Passwords waiting to be verified: of one user from one address, from one address, and of each
#: kind (known pairs, known addresses, others); one more rejects one.  Even one thread verifies them
#: all before their clients give up.
LOGINS_WAITING_PER_USER_MAX: Final = 16
LOGINS_WAITING_PER_NETWORK_MAX: Final = 64
LOGINS_WAITING_MAX: Final = 256

# -- broker ----------------------------------------------------------------------------------------

#: Messages that a loop processes before other work runs: compiled code holds the GIL meanwhile.
SLICE_MESSAGES: Final = 4096

#: Bytes of a message for a cost of 1 (`broker/scheduler/costs.py`) if they are copied into the
#: output: 60 kB take some 40 µs.
CONTENT_BYTES_PER_COST: Final = 2048

#: The size of a message from which on freeing it counts as a cost.
LARGE_MESSAGE_BYTES: Final = 1 << 20

#: Bytes for a cost of 1: of input that is not a complete message yet; and of a method, or of a
#: message's properties, that are read entry by entry.
INPUT_BYTES_PER_COST: Final = 256
TABLE_BYTES_PER_COST: Final = 16

#: Queues and exchanges of one vhost, and bindings from one exchange.
QUEUES_PER_VHOST_MAX: Final = 1_000_000
EXCHANGES_PER_VHOST_MAX: Final = 100_000
BINDINGS_PER_EXCHANGE_MAX: Final = 1_000_000

#: The default limits of users on a data directory created by this release or a later one (global
#: parameter `default_user_limits`); a user's own limits take precedence.  No program reaches them
#: by
#: design; one that leaks or attacks does, before all other users notice.
#: Queues: they take two thirds of a gigabyte of memory, and each checkpoint writes them.
QUEUES_PER_USER: Final = 250_000
#: Bindings: as many as one exchange may have; they take half a gigabyte.
BINDINGS_PER_USER: Final = 1_000_000
#: Connections: four fifths of `CONNECTIONS_MAX`, so that no user takes all slots.
CONNECTIONS_PER_USER: Final = 40_000
#: Messages: a day of 10,000 a second without a consumer.
MESSAGES_PER_USER: Final = 1_000_000_000
#: Bytes of messages, in percent of the file system with the data directory: the journal,
#: checkpoints and other users need the rest before the disk alarm blocks all publishers.
MESSAGE_BYTES_PER_USER_PERCENT: Final = 80

#: Users, the tags of one user and their topic permissions in one vhost; vhosts.
USERS_MAX: Final = 100_000
USER_TAGS_MAX: Final = 64
TOPIC_PERMISSIONS_MAX: Final = 1024

#: The bytes of a password hash: an Argon2 hash with a long salt has some 150.
PASSWORD_HASH_BYTES_MAX: Final = 1024

VHOSTS_MAX: Final = 10_000

#: The cost of verifying an Argon2 hash of another broker: memory in KiB, and rounds.
ARGON2_KIB_MAX: Final = 1_048_576
ARGON2_ROUNDS_MAX: Final = 64

#: Tags of one vhost, and the bytes of its description.
VHOST_TAGS_MAX: Final = 64
VHOST_DESCRIPTION_BYTES_MAX: Final = 4096

#: Runtime parameters of all vhosts, and global ones; bytes of the value of one.
PARAMETERS_MAX: Final = 4096
PARAMETER_BYTES_MAX: Final = 65_536

#: Policies of one vhost, and operator policies: each new queue is matched against all of them.
POLICIES_PER_VHOST_MAX: Final = 4096

#: Routing keys in the headers CC and BCC of one message: each is as much work as a publish, all in
#: one step.  Public programs and reports name a handful.
COPY_KEYS_MAX: Final = 256

#: Bindings of a queue from exchanges that choose one binding for each message: these are removed in
#: one step when the queue is deleted, some µs each, so that no message is lost by choosing one.
CHOICES_PER_QUEUE_MAX: Final = 1024

#: Bindings that match a message, by all its keys and in all exchanges that it reaches, and the
#: steps to find them: positions in patterns of topic bindings (two each), conditions on headers.
#: Checks of the keys of CC and BCC against the user's topic permissions count too, with their
#: positions in patterns: 8 to 20 for a key where the pattern is about its beginning.  It runs in
#: one step, some 0.1 µs each; the fan-out to 100,000 queues stays below.
ROUTING_LOOKS_MAX: Final = 131_072

#: Queues that get a message in one step: a larger fan-out has parts of at least this size, between
#: which other work runs.
FAN_OUT_COPIES: Final = 2048

#: Words in a topic key; the matching cost is bounded by it (a short string holds 256 at most).
TOPIC_WORDS_MAX: Final = 256

#: Points of a unit of weight on the ring of a consistent-hash exchange.  With weights of 1 the
#: worst of 4 queues is usually 11 % off its share, the worst of 16 queues 19 %.  Another number
#: would move values of existing exchanges to other queues, past messages that wait in the present
#: ones.
RING_POINTS_PER_WEIGHT: Final = 100

#: The weight of one binding of such an exchange, and of all together (a point takes 44 bytes).
RING_WEIGHT_MAX: Final = 1000
RING_WEIGHTS_MAX: Final = 10_000

#: Messages of a recent-history exchange, by default (as in RabbitMQ's plugin) and at most: a bind
#: replays all of them at once.
HISTORY_MESSAGES: Final = 20
HISTORY_MESSAGES_MAX: Final = 4096

#: Values, or patterns of routing keys, in the filter of one consumer of a stream; and words after
#: the first `#` of these patterns together, each of which every word of a routing key may reach
#: (0.5 µs; a key has at most 128 words).
STREAM_FILTER_VALUES_MAX: Final = 256
STREAM_FILTER_WORDS_MAX: Final = 256

#: Names under which a stream stores offsets of consumers: each takes space in every checkpoint.
STREAM_OFFSET_NAMES_MAX: Final = 40_000

#: The part of them that one user may own (user limit `max-stream-consumers`): a quarter, so that no
#: user's leftovers lock out the others.
STREAM_OFFSET_NAMES_PER_USER_MAX: Final = 10_000

#: Partitions of one super stream: each is a stream, and a consumer of all reads them all.  All are
#: created in one step, some 40 µs each.  Public examples have 3 to 10; RabbitMQ allows 1,000.
SUPER_STREAM_PARTITIONS_MAX: Final = 256
#: The maximum of earlier releases: such a super stream works as before, and can be redeclared.
SUPER_STREAM_PARTITIONS_KEPT_MAX: Final = 1024

#: The definitions created by one declare of a super stream are one record, which takes some 12 ms
#: to write.  1 KiB for each of 256 partitions is three times the need.
SUPER_STREAM_BYTES_MAX: Final = 262_144

#: The longest `x-message-ttl` and `x-expires`: ten years of 365 days, as in RabbitMQ.  Celery's
#: delayed delivery declares a queue of 2^27 s, which is four years.
TTL_MS_MAX: Final = 315_360_000_000

#: The longest delay of a delayed message: ten years, leap days included.
DELAY_MS_MAX: Final = 315_619_200_000

#: A regex of a policy or a permission: its length, its nested groups, the count of a repeat, and
#: its compiled states.
PATTERN_CHARACTERS_MAX: Final = 1024
PATTERN_DEPTH_MAX: Final = 50
PATTERN_REPEATS_MAX: Final = 1000
PATTERN_STATES_MAX: Final = 2000

#: The steps of one match, some 0.1 µs each, after which it fails: each character of the longest
#: name can be at 250 positions of the pattern at once, while honest ones are at two or three.
PATTERN_LOOKS_MAX: Final = 65_536

#: Copies that dead-lettering may make by itself (expiry, limits) of a message that a client put
#: into a queue or rejected there: a fan-out to this many queues, or a chain of them.  One small
#: message can cost as much work as this many publishes.
DEAD_LETTER_COPIES_MAX: Final = 1024

#: The content of a dead letter's `x-death`, newest deaths first: entries, and bytes.  Each death
#: reads and writes them all, and a delivery carries them in one frame.
DEATHS_LISTED_MAX: Final = 128
DEATHS_BYTES_MAX: Final = 32_768

#: Dead letters that wait for their routing; beyond it no more messages expire.
LETTERS_WAITING_MAX: Final = 4096

#: The default delivery limit of quorum queues, as in RabbitMQ 4.3.
DELIVERY_LIMIT_QUORUM: Final = 20

#: The longest expiration of a message, in ms: ten years, as in RabbitMQ.
EXPIRATION_MS_MAX: Final = 315_360_000_000

#: Keys that a queue with a deduplication header keeps by default, and at most.
DEDUPLICATION_KEYS: Final = 1000
DEDUPLICATION_KEYS_MAX: Final = 1_000_000

#: Publishers whose highest number a queue keeps (each takes some 200 bytes).  One more is refused
#: until one of them has been idle long enough: forgetting one early could accept a message twice.
PUBLISHERS_PER_QUEUE_MAX: Final = 40_000

#: The part of them that one user may own (user limit `max-publishers`): a quarter, so that no
#: user's leftovers lock out the others.
PUBLISHERS_PER_USER_MAX: Final = 10_000

#: The idle time after which a publisher or a sink is forgotten: a week, so that a job that failed
#: on a Friday can be started again on a Monday.
PUBLISHER_EXPIRY_MS: Final = 604_800_000

#: The same for a name that a client's connection, or a save of a table, generated.  It is not used
#: after that connection, which may be lost and try to reconnect for so long.
CLIENT_PUBLISHER_EXPIRY_MS: Final = 3_600_000

#: How long the broker remembers the progress of a client's publishes after its connection was lost:
#: as long as the client may try to reconnect.
PUBLISH_SESSION_EXPIRY_MS: Final = 3_600_000

#: Sinks of a vhost (each takes some 600 bytes): one for each streaming query that writes to it; a
#: cluster runs hundreds of these.  All end with their vhost.  One more is refused until one of them
#: has been idle long enough.
SINKS_PER_VHOST_MAX: Final = 4_000

#: The part of them that one user may own (user limit `max-sinks`): a quarter, so that no user's
#: leftovers lock out the others.
SINKS_PER_USER_MAX: Final = 1_000

#: Staging queues in one commit: one for each task that publishes a part of the batch.  The decision
#: is one record with all their numbers, which `TABLE_ENTRIES_MAX` limits.
STAGING_QUEUES_PER_COMMIT_MAX: Final = 4000

#: The body of a commit: all these queues with the longest names, as JSON.
COMMIT_BYTES_MAX: Final = 2 * 1024 * 1024

#: Committed batches of one sink that are not released yet: a faster committer is refused.
RELEASES_PER_SINK_MAX: Final = 64

#: Bytes of acked messages that a queue retains if only a time is set: they are in memory.
RETAINED_BYTES_MAX: Final = 256 * 1024 * 1024

# -- store -----------------------------------------------------------------------------------------

#: Unsynced bytes of the journal; beyond it publishers are not read.
UNSYNCED_BYTES_MAX: Final = 8 * 1024 * 1024

#: The free disk space that publishers must leave (RabbitMQ: 50 MB): messages accepted before they
#: were blocked fit into it several times.
DISK_FREE_BYTES_MIN: Final = 50_000_000

#: The file that makes room for acks, deletes and checkpoints when other programs have filled the
#: disk: twice the unsynced bytes.
BALLAST_BYTES: Final = 16 * 1024 * 1024

#: A journal file is closed at this size; a larger single record makes the file larger.
JOURNAL_FILE_BYTES: Final = 64 * 1024 * 1024

#: The size of the journal that starts a checkpoint.
JOURNAL_BYTES_MAX: Final = 512 * 1024 * 1024

#: A chunk is closed at either of these; a larger single message makes the chunk larger.
CHUNK_BYTES_MAX: Final = 262_144
CHUNK_RECORDS_MAX: Final = 4096

#: Chunks that queues write when their memory is full: this many bytes are written and synced at
#: once, and this many wait at most; beyond it publishers are not read.
SPILL_BATCH_BYTES: Final = 4 * 1024 * 1024
SPILL_BYTES_MAX: Final = 8 * 1024 * 1024

#: Memory that the waiting messages of one queue may use before new ones are written to disk, and
#: the overhead of each in addition to its bytes.
QUEUE_WINDOW_BYTES: Final = 16 * 1024 * 1024
MESSAGE_OVERHEAD_BYTES: Final = 200

#: A segment file with more messages is compacted when less than this percentage of them is live.
COMPACT_RECORDS_MIN: Final = 2000
COMPACT_LIVE_PERCENT: Final = 50

#: Chunks of a deep queue that are read before its consumers need them, and the bytes after which no
#: further chunk is read: a chunk may be one message of 128 MiB.
PAGES_AHEAD: Final = 3
PAGES_AHEAD_BYTES: Final = 16 * 1024 * 1024

#: Memory for blocks of streams that are also in files: the newest ones, and those read back.  It
#: fits 200 blocks of large messages, or 85 of messages with 100 bytes.
STREAM_CACHE_BYTES_MAX: Final = 64 * 1024 * 1024

# -- client ----------------------------------------------------------------------------------------

#: Received messages that the application has not taken yet, beyond which the connection ends with
#: an error instead of taking the machine's memory, unless one message alone is larger: replies and
#: confirms follow the messages, so reading cannot always pause.
CLIENT_INPUT_BYTES_MAX: Final = 128 * 1024 * 1024

#: The overhead of one such message in addition to its body: objects and property bytes.
CLIENT_MESSAGE_OVERHEAD_BYTES: Final = 512

#: Bytes collected before they go to the socket without another reason.
CLIENT_OUTPUT_BYTES_HIGH: Final = 65_536

#: Unsent bytes while the broker does not read; beyond it a publish that must not wait fails.
CLIENT_OUTPUT_BYTES_MAX: Final = 64 * 1024 * 1024

#: The largest body that a client accepts: RabbitMQ's cap on its own setting.
CLIENT_MESSAGE_BYTES_MAX: Final = 512 * 1024 * 1024

#: Frames of unconfirmed messages that are kept to be sent again after a lost connection; beyond it
#: a publish that must not wait fails.
CLIENT_UNCONFIRMED_BYTES_MAX: Final = 128 * 1024 * 1024

#: Partitions of a consumer cluster: each is a queue, with a consumer of every member.  With the
#: weight of each they stay below `RING_WEIGHTS_MAX`.
CLUSTER_PARTITIONS_MAX: Final = 256

#: Numbered members of a consumer cluster; more members than partitions have no work.
CLUSTER_MEMBERS_MAX: Final = 256

#: The delivery limit of a cluster's messages, after which the broker dead-letters one: a message
#: that kills every member that gets it must end, but members are also killed for other reasons,
#: more often than the 20 times of a quorum queue's default.
CLUSTER_DELIVERIES_MAX: Final = 100

# -- HTTP on TCP -----------------------------------------------------------------------------------

#: Open connections: each holds 64 KiB to 512 KiB while its peer does not read.  If the system gives
#: few descriptors, they get a quarter of those for connections.
HTTP_CONNECTIONS_MAX: Final = 1024

#: Requests of one user in progress, most of which wait at the end of a stream: half of the
#: connections, so that no user takes all slots.
HTTP_REQUESTS_PER_USER_MAX: Final = 512

#: The part of them that is not for streams: lists and changes, which hold memory while they last
#: and do not wait for anything.
HTTP_API_REQUESTS_PER_USER_MAX: Final = 64

#: Heavy requests of one user in progress, whose work grows with the number of objects or messages
#: (`management.rights`): sorted lists keep a row for each object, and messages are held until they
#: are sent.  Further ones wait; with four, a page that requests several lists still gets them
#: together.
HTTP_HEAVY_REQUESTS_PER_USER_MAX: Final = 4

#: How long a connection may be open without a complete request; how long the head of a request may
#: take from its first byte (for the first request, from the connect); and how long a peer may leave
#: output unread; slower ones are cut off.
HTTP_IDLE_SECONDS_MAX: Final = 60
HTTP_HEAD_SECONDS_MAX: Final = 10
HTTP_STALL_SECONDS_MAX: Final = 60

#: A request's body, and how long it may take to arrive.
HTTP_BODY_BYTES_MAX: Final = 1024 * 1024
HTTP_BODY_SECONDS_MAX: Final = 30

#: Requests that are read and answered at once share this fraction of `memory_bytes_max`, a user
#: half of it, for their bodies and for the parts of their answers that are not sent yet; one more
#: is refused (503), unless it is the only one, or it is small.
REQUEST_SHARE: Final = 8

#: The body of a login form, whose sender is unknown when it is read: two AMQP short strings,
#: percent-encoded, fit twice.
HTTP_LOGIN_BYTES_MAX: Final = 4096

#: Sessions of the broker's page, each some 500 bytes, in all and of one user; and how long one may
#: last, and be unused (an open page sends a request every few seconds): RabbitMQ's 8 hours, and 1.
HTTP_SESSIONS_MAX: Final = 1024
HTTP_SESSIONS_PER_USER_MAX: Final = 32
HTTP_SESSION_SECONDS_MAX: Final = 28_800
HTTP_SESSION_IDLE_SECONDS_MAX: Final = 3600

#: How many readers may follow the log over HTTP, in all and of one user, and for how long with one
#: request.
LOG_TAIL_READERS_MAX: Final = 16
LOG_TAIL_READERS_PER_USER_MAX: Final = 8
LOG_TAIL_SECONDS_MAX: Final = 3600

#: Bytes of properties and bodies in one answer to `get` or `browse`; a larger message is alone in
#: its answer.
HTTP_MESSAGES_BYTES_MAX: Final = 4 * 1024 * 1024

#: Steps that a dry run returns: 60,000 queues took 0.1 s, in which no other work ran.
DRY_RUN_STEPS_MAX: Final = 1_000

#: Reports of Spark queries, each of one run over one stream, in the whole broker and of one user:
#: five queries over a thousand streams.  Beyond it a user's most silent report is forgotten.
#: To find the last runs among 10,000 of one stream takes 10 ms.
STREAM_QUERIES_MAX: Final = 10_000
STREAM_QUERIES_PER_USER_MAX: Final = 5_000

#: How long a silent query is shown: a job that runs every half an hour stays, and a lag that grows
#: because its query died is seen.
STREAM_QUERY_SILENCE_MS: Final = 3_600_000

#: The characters of a query's name that are kept; Spark does not limit it.
STREAM_QUERY_NAME_CHARACTERS_MAX: Final = 128

#: How long a request may wait for a message at the end of a stream.
HTTP_WAIT_MS_MAX: Final = 60_000

#: The bytes of chunks after which an answer ends, by default and at most.
HTTP_CHUNKS_BYTES: Final = 16 * 1024 * 1024
HTTP_CHUNKS_BYTES_MAX: Final = 1024 * 1024 * 1024

#: A chunk is read and written in parts of this size, which an answer holds in memory.  A full block
#: of small messages is 0.4 MB and so is one part (two parts cost the broker a quarter more).
HTTP_WRITE_BYTES_MAX: Final = 524_288

# -- metrics ---------------------------------------------------------------------------------------

#: Open connections for Prometheus: one is enough for a server that scrapes.  If the system gives
#: few descriptors, they get a sixteenth of those for connections.
METRICS_CONNECTIONS_MAX: Final = 32

#: Concurrent answers with an entry for each object: each holds its entries in memory.
SCRAPES_PER_OBJECT_MAX: Final = 2

#: Entries of each kind (queues, connections, channels, readers of streams) in such an answer: a
#: queue's entry has thirteen lines of 100 bytes.
SCRAPE_OBJECTS_MAX: Final = 10_000

#: Rows of one page of a list, and characters of the name filter: RabbitMQ's limits.
PAGE_ROWS_MAX: Final = 500
PAGE_FILTER_CHARACTERS_MAX: Final = 1024

#: Consumers shown with one queue or one channel; the list of consumers has all.
CONSUMERS_SHOWN_MAX: Final = 1024

#: Columns that one list is sorted by.  Each row has a key of all of them during the sort.
LIST_SORTS_MAX: Final = 8

#: Steps that a client's pattern may take on all names of one list: about a second of work, in
#: slices between which other work runs.
LIST_PATTERN_STEPS_MAX: Final = 8_388_608

#: Queues whose rates are kept while a client requests them, some 500 bytes each.
RATES_MAX: Final = 20_000

#: Points of one history in an answer, as in RabbitMQ.
SAMPLE_POINTS_MAX: Final = 500

# -- backup ----------------------------------------------------------------------------------------

#: How long a client that makes a backup may be silent before the broker removes files again: it
#: sends a request every few seconds, and one that hangs must not fill the disk.
BACKUP_SILENCE_SECONDS_MAX: Final = 60

#: Concurrent backups over HTTP: they share one rate, and each holds a row for each file of the data
#: directory, some 700 bytes.
BACKUPS_MAX: Final = 2

# -- spark -----------------------------------------------------------------------------------------

#: Messages that one Spark task reads at most, by default: about a second over AMQP.  With
#: 100,000, tasks cost as much as rows: bulk reads had 0.45 of the rate from memory, not 0.86.
SPARK_PARTITION_RECORDS: Final = 500_000

#: The disk space for the events of a vhost; the oldest are removed first.
EVENT_STREAM_BYTES: Final = 1 << 30

#: An Arrow batch is closed at either of these (measured in rows/s: 1,000 a batch 2.0 M, 10,000
#: 2.3 M, 50,000 2.7 M); one larger message makes a larger batch.
SPARK_BATCH_RECORDS: Final = 20_000
SPARK_BATCH_BYTES: Final = 16 * 1024 * 1024

#: Messages that one task of a sink sends before their confirms: some ten syncs of the broker.
SPARK_WRITE_WINDOW: Final = 16_384

#: How long a task tries to reach an unreachable broker: it may be starting after a crash with a
#: large journal, which takes seconds, or with its machine, which takes a minute or two.
SPARK_RETRY_MS: Final = 120_000

#: A task fails after so long without a confirm, unless the broker blocks publishers.
SPARK_WRITE_TIMEOUT_MS: Final = 120_000

#: An abandoned attempt's staging queue expires after a day; the whole batch must be done before.
SPARK_WRITE_STAGING_MS: Final = 24 * 3600 * 1000

#: Streams of one read: the driver has a connection for each.
SPARK_STREAMS_MAX: Final = 1_000

#: The broker's list of streams, as JSON: some 100,000 names.
SPARK_LISTING_BYTES_MAX: Final = 64 * 1024 * 1024

#: Addresses that one `connect` tries in turn: each may take the whole connect timeout.
CLIENT_ADDRESSES_MAX: Final = 64

#: Connections of a pool to one address, by default.
CLIENT_POOL_CONNECTIONS: Final = 8

#: How long a program waits for a connection of a pool: a longer wait usually means that one was
#: never returned.
CLIENT_POOL_WAIT_SECONDS: Final = 30

#: The idle time after which a connection of a pool is closed.
CLIENT_POOL_IDLE_SECONDS: Final = 300

#: The idle time after which a connection of a pool is checked before it is lent.
CLIENT_POOL_CHECK_SECONDS: Final = 10

# -- the shell -------------------------------------------------------------------------------------

#: A line of `leveret shell`: enough for a typed body; larger bodies are in files.
SHELL_LINE_BYTES_MAX: Final = 1024 * 1024
