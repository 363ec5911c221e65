"""Shared parts of the jobs' HTML pages."""
