"""Connections to the HTTP listeners: timeouts, log and addresses."""
