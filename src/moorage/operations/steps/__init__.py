"""Steps that several sagas use, and their shared functions."""
