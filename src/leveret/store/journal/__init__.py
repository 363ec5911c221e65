"""The journal: its groups in memory, its files on the disk, and reading them again."""
