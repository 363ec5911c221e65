"""Connections to the HTTP ports: limits, log and addresses."""
