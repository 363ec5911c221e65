"""Recovery of lost connections, sans-IO: the delays between attempts, and the restoration of state.

Both shells use it.  The session records the state to restore in `session/memory`.
"""
