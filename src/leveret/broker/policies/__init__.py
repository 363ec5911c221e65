"""One policy, and the keys that it may set; which queue has which is in `vhost/policies.py`."""
