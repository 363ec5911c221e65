"""The routes of the node: connections, health, metrics, log and backups."""
