"""To a host: how its ports are to be wired.  No command, for it is about no server: it has no turn, versions order it."""

import msgspec

from moorage.model.port_description import AddressSetPart, PortDescription, Present


class PortDescriptions(msgspec.Struct, frozen=True, tag="port_descriptions"):
    """Some objects; those of lower versions than the host has are left out by it, and what it lacks it will be sent again."""

    host: str
    version: int
    """Of all that the sender knows: no object has a higher one."""
    ports: tuple[PortDescription, ...] = ()
    sets: tuple[AddressSetPart, ...] = ()
    present: Present | None = None
    """None: other messages say it."""
