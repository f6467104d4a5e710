"""Placement: the provider cache in memory, and claims that SQL decides."""
