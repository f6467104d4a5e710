"""Writes that concern one noun and tell no saga: a flavor, a key pair, a quota."""
