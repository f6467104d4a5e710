"""The front desk: understands a request in the version it was asked in, asks policy, and answers in that version."""
