"""What the Placement API means: candidates, allocations, providers, and the search below one anchor."""
