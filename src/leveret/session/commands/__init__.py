"""The handlers of client methods: one file per AMQP class, and per larger method of class basic.

Each handler takes the channel and the decoded method, calls the broker and replies.  Handlers raise
errors; the connection turns them into closes.
"""
