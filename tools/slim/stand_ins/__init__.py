"""Stand-ins for packages that may be missing where `leveret-spark` is."""
