"""Reconcilers: they take no input, run on a timer and when nudged, and report what they did.

After a crash the same code runs as on every other day (habit 12).
"""
