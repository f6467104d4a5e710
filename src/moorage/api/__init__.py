"""The Compute API: reads a request in its microversion, checks policy, and answers in that microversion."""
