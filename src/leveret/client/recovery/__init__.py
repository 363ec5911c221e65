"""Recovery of lost connections, sans-IO: when to reconnect, and what to restore afterwards.

Both shells use it.  The state to restore is recorded by the session (`session/memory`).
"""
