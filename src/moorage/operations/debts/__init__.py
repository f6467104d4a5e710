"""Payment of what hosts owe to servers."""
