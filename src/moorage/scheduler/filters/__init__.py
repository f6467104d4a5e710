"""Filters: functions `(ask, world) -> Refusals | None` that judge all hosts at once, on columns."""
