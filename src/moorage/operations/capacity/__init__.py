"""What fits, and what if something fails: questions that change nothing (N8)."""
