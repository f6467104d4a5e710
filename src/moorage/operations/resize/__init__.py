"""Resize and cold migration, to any allowed host of any cell; confirm and revert."""
