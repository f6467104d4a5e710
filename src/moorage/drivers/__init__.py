"""Drivers make and destroy guests; they know nothing of turns, messages or the region."""
