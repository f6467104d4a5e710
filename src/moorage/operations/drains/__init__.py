"""Drains: the servers of a host or of a cell leave it, each by an operation of its own."""
