"""One event of the audit log, as it waits in the outbox until it is sent.

Rows outlive releases: a field is only ever added, with a default.
"""

import msgspec


class Audited(msgspec.Struct, frozen=True):
    """An event; its first field `cadf` distinguishes its row from one about a server (`MARK`)."""

    cadf: msgspec.Raw
    """The event in the form of CADF (DSP0262), as JSON."""
    event_type: str
    """`audit.http.response`, `identity.authenticate` …"""
    publisher: str
    at: int
    id: str
    """The message's id; it is the same when the message is sent again."""
    request_id: str = ""
    global_request_id: str = ""
    user: str = ""
    project: str = ""


MARK = b'{"cadf":'
