"""Handlers of the Compute API, by resource, in today's full shape."""
