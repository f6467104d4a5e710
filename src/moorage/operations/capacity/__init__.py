"""Capacity and failover questions: how many servers fit, and what happens if something fails. They change nothing (N8)."""
