"""Decisions as they were made: each with what it looked at, in files of the process that decides."""
