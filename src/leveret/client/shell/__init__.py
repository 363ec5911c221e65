"""What the asyncio and the blocking shell share: all but bytes, time and waiting."""
