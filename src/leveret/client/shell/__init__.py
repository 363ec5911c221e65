"""The parts that the asyncio and the blocking shell share, without sockets, timers and waiting."""
