"""Writes that concern one noun and tell no story: a flavor, a key pair, a quota."""
