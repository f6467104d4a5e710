"""An image, as the image service describes it."""

import msgspec


class Image(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str = ""
    status: str = "active"
    visibility: str = "private"
    owner: str = ""
    disk_format: str | None = None
    container_format: str | None = None
    size_bytes: int | None = None
    virtual_size_bytes: int | None = None
    min_disk_gib: int = 0
    min_ram_mib: int = 0
    hidden: bool = False
    protected: bool = False
    created_at: str = ""
    updated_at: str = ""
    tags: tuple[str, ...] = ()
    properties: dict[str, str] = {}
