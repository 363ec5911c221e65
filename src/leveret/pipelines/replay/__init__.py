"""The replay job: publishes recorded messages again."""
