"""What administrators do with moves of any kind: see both ends of one, and cancel it."""
