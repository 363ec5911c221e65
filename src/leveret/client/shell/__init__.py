"""The parts that the asyncio and the blocking shell share: all but sockets, timers and waiting."""
