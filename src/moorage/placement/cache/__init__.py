"""The provider cache: every resource provider in memory, its numbers in columns, loaded and kept current from the
change feed.
"""
