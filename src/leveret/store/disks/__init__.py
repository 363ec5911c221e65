"""Disks for tests and demonstrations: one that fails on command, one that records."""
