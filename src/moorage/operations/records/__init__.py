"""Writes that concern one kind of record and execute no saga: a flavor, a key pair, a quota."""
