"""`moorage set`: a whole cloud as separate processes on this machine, with the PostgreSQL, NATS and certificates that it needs."""
