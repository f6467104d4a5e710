"""An optional power: snapshots of attached volumes whose back end keeps them as files (see `driver.py` for what all verbs promise)."""

from typing import Protocol, runtime_checkable

from moorage.model.guest import PowerState
from moorage.model.ids import ServerId


@runtime_checkable
class AssistedSnapshots(Protocol):
    """A volume is a chain of qcow2 files, each over the one before; the guest writes to the last."""

    async def take_volume_snapshot(self, server: ServerId, volume: str, snapshot: str, new_file: str) -> PowerState:
        """The guest writes to `new_file` from now, over the file it wrote to before; done already is success.

        Raises HostFailed: `volume_not_found` when the guest has no such volume.
        """
        ...

    async def drop_volume_snapshot(
        self, server: ServerId, volume: str, snapshot: str, merge_file: str | None, merge_target: str | None
    ) -> PowerState:
        """`merge_file` goes out of the chain: into `merge_target` below it, or without one into the file that the guest writes to.

        Without a `merge_file` it is the snapshot's own file. A file that is not in the chain is success. Raises HostFailed:
        `volume_not_found`.
        """
        ...
