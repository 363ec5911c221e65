"""What a client's methods do, a file per AMQP class.

Each handler takes the channel and the decoded method, calls the broker and replies.  Errors are
raised; the connection turns them into closes.
"""
