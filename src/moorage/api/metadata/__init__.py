"""The metadata service: what a guest reads of itself at 169.254.169.254, and where it leaves its password."""
