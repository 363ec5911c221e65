"""Sockets only: listeners, the asyncio shells around sessions, and the runner of effects."""
