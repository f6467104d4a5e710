"""The input of an evacuation; kept in journals.

Fields are only ever added, with defaults (RULES §19).
"""

import msgspec

from moorage.model.fence_proof import FenceProof
from moorage.model.ids import HostId
from moorage.model.resources import Needs
from moorage.model.server import FlavorCopy, Server, VmState
from moorage.model.world import GroupAsk


class Evacuate(msgspec.Struct, frozen=True):
    """Everything that the evacuation needs; nothing is looked up by name after this."""

    server: Server
    seq: int
    migration: str
    """The UUID of the move."""
    fence: FenceProof | None = None
    """The proof that was known when it was accepted."""
    stopped: bool = False
    """Whether it stays off on the new host, in whatever state it was (2.95)."""
    host: str | None = None
    """The only host where it may go."""
    needs: Needs = Needs({})
    group: GroupAsk | None = None
    near: tuple[HostId, ...] | None = None
    far: tuple[HostId, ...] = ()
    sealed_password: str = ""
    request_id: str = ""
    user: str = ""
    global_request_id: str = ""
    by_project: str = ""
    across: bool = False
    """Whether it may get addresses of other segments."""
    cross_cell: bool = False
    """Whether it may go to other cells."""

    @property
    def flavor(self) -> FlavorCopy:
        return self.server.flavor

    @property
    def same_host(self) -> bool:
        """Never: the old host is excluded."""
        return False

    @property
    def becomes(self) -> VmState:
        """The state after the evacuation: the same as before; a server in ERROR becomes active."""
        before = self.server.vm_state
        off = before is VmState.STOPPED or (self.stopped and before is not VmState.ERROR)
        return VmState.STOPPED if off else VmState.ACTIVE
