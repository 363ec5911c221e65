"""Computing where a topology would route traffic."""
