"""Dry run: what an operation would do: its hosts in order, why others are refused, and the calls of each step."""
