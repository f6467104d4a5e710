"""Weighers: functions `(ask, world, slots) -> scores | None`; a higher score is better. The profile normalises and weights them."""
