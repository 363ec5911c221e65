"""Sockets: listeners and the asyncio protocols around sessions."""
