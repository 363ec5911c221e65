"""The use of the event loop and memory by HTTP requests, and the detection of their changes."""
