"""Notifications about servers in Nova's formats: `event_map` says what happened, `outbox_writer` stores it, `versioned`
and `unversioned` format it.
"""
