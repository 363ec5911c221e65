"""Policies and operator policies, and their keys; `vhost/policies.py` applies them to queues."""
