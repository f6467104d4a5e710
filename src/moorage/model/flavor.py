"""A flavor: the size of a server, and what it asks of a host."""

import msgspec

from moorage.model.ids import FlavorId
from moorage.model.server import FlavorCopy


class Flavor(msgspec.Struct, frozen=True):
    """One flavor as the region keeps it."""

    number: int
    """Our own key; users see `id`."""
    id: FlavorId
    name: str
    vcpus: int
    ram_mib: int
    disk_gib: int
    ephemeral_gib: int = 0
    swap_mib: int = 0
    rxtx_factor: float = 1.0
    is_public: bool = True
    disabled: bool = False
    description: str | None = None
    extra_specs: dict[str, str] = {}
    projects: tuple[str, ...] = ()
    """The projects that may use it, if it is not public."""
    created_at: int = 0
    updated_at: int | None = None

    def copy(self) -> FlavorCopy:
        """Return the part of the flavor that a server keeps."""
        return FlavorCopy(
            id=self.id,
            name=self.name,
            vcpus=self.vcpus,
            ram_mib=self.ram_mib,
            disk_gib=self.disk_gib,
            ephemeral_gib=self.ephemeral_gib,
            swap_mib=self.swap_mib,
            rxtx_factor=self.rxtx_factor,
            description=self.description,
            extra_specs=dict(self.extra_specs),
            number=self.number,
            is_public=self.is_public,
        )

    def usable_by(self, project: str | None) -> bool:
        """Whether a project that is not an administrator's may see and boot it."""
        return self.is_public or (project is not None and project in self.projects)
