"""Handlers of the Compute API, by noun, in today's full shape."""
