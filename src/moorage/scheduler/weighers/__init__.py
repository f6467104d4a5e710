"""Weighers: one file, one function `(ask, world, slots) -> scores | None`; more is better, the profile normalises and weighs."""
