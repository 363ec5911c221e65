"""The common parts of the asyncio and the blocking shell: all but bytes, time and waiting."""
