"""2.57: No more files are put into servers (`personality`)."""

from moorage.api.microversions import Change

CHANGE = Change(
    at=(2, 57),
    says="No more files are put into servers (`personality`).",
    refuses_from={"POST /servers": {"server": ("personality",)}},
)
