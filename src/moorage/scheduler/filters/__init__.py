"""Filters: one file, one function `(ask, world) -> Refusals | None`, judging all hosts at once on columns."""
