"""HareMQ's protocol over the broker's vhosts: its frames, its sessions and its listener."""
