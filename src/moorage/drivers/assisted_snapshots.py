"""An optional ability: snapshots of attached volumes that are files of the back end (`driver.py` has the rules for all verbs)."""

from typing import Protocol, runtime_checkable

from moorage.model.guest import PowerState
from moorage.model.ids import ServerId


@runtime_checkable
class AssistedSnapshots(Protocol):
    """Makes and removes snapshots of a volume that is a chain of qcow2 files; the guest writes to the last file."""

    async def take_volume_snapshot(self, server: ServerId, volume: str, snapshot: str, new_file: str) -> PowerState:
        """Let the guest write to `new_file`, over the file to which it wrote before; may be repeated.

        Raises HostFailed: `volume_not_found` when the guest has no such volume.
        """
        ...

    async def drop_volume_snapshot(
        self, server: ServerId, volume: str, snapshot: str, merge_file: str | None, merge_target: str | None
    ) -> PowerState:
        """Remove `merge_file` from the chain: merge it into `merge_target` below it, or else into the file to which the guest writes.

        Without a `merge_file` it is the snapshot's own file. A file that is not in the chain is success. Raises HostFailed:
        `volume_not_found`.
        """
        ...
