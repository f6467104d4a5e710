"""Sagas: what happens to a server from the request to the end, each step beside its undo; and one-noun writes."""
