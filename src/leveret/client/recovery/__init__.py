"""Recovery of lost connections, sans-IO: when to try again, and what to do again on a new one.

Both shells use it.  What has to be done again is remembered by the engine (`session/memory`).
"""
