"""How a guest is rescued; part of its server's record and of messages to its host."""

import msgspec


class RescueSpec(msgspec.Struct, frozen=True):
    """How a guest is rescued: the image it boots from, while its own disks are attached as well."""

    image: str
    properties: dict[str, str] = {}
    device: str = ""
    """`hw_rescue_device`: disk, cdrom or floppy; empty and no bus: the rescue disk takes the first place, and the others move down."""
    bus: str = ""
    """`hw_rescue_bus`.  With either of the two every disk keeps its place (stable device rescue)."""
