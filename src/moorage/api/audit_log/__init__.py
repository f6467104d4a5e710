"""The audit log: who asked for what, from where, and with what outcome; in CADF's form (docs/operating/audit-log.md)."""
