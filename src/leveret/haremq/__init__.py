"""HareMQ's protocol for the broker's vhosts: its frames, its connections and its listener."""
