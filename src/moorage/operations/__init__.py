"""Sagas: the operations on servers, each step beside its undo; and writes of single records that need no saga."""
