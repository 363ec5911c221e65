"""The route job: computes where a topology would route traffic."""
