"""Exchanges of every type, and the bindings between them and queues."""
