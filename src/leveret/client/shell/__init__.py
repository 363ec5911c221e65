"""The parts that the asyncio and the blocking shell share: no sockets, timers or waiting."""
