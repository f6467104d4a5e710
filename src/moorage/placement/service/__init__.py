"""The semantics of the Placement API: candidates, allocations, providers, and the search below one anchor."""
