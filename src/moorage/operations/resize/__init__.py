"""Resize and cold migration, to any host the caller may use, in any cell; confirm and revert."""
