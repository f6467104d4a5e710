"""Audits: their findings, and the repairs that were made.

A finding names one thing that differs from the servers' records.  It is stored in reports and read by later releases: fields are
added with defaults.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

import msgspec

FINDINGS_KEPT_MAX = 1_000
"""Findings that one report keeps; further ones are only counted."""
SERVERS_ASKED_MAX = 1_000
OWN = "moorage"
"""The user of audits that run periodically."""


class AuditStatus(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    """Nothing could be compared."""


class Finding(msgspec.Struct, frozen=True):
    kind: str
    what: str
    """The id of the thing."""
    where: str
    """The service that has it, the cell or the host."""
    server: str = ""
    """The server to which it belongs or belonged; empty: none."""
    expected: str = ""
    found: str = ""
    repairable: bool = False
    repair: str = ""
    """What a repair does; if there is no repair, what a person can do."""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """A key that is equal for the same finding in two comparisons."""
        return self.kind, self.what, self.where, self.server


class Repair(msgspec.Struct, frozen=True):
    """One line of the journal of repairs."""

    audit: str
    at: int
    """Microseconds since 1970, UTC."""
    by: str
    kind: str
    what: str
    where: str
    server: str
    was: str
    done: str


class AuditRequest(msgspec.Struct, frozen=True):
    """What an audit should compare, and whether it repairs."""

    kinds: tuple[str, ...] = ()
    """Empty: all."""
    servers: tuple[str, ...] = ()
    """Empty: all."""
    repair: bool = False
    dry_run: bool = False
    """Whether repairs are only listed and not made."""
    limit: int = FINDINGS_KEPT_MAX


class AuditReport(msgspec.Struct, frozen=True):
    looked_at: dict[str, int] = {}
    """Servers, ports, attachments … → how many."""
    not_looked_at: dict[str, str] = {}
    """Cells and services that were out → why."""
    counts: dict[str, int] = {}
    """Kind → how many, including findings that are not kept."""
    findings: tuple[Finding, ...] = ()
    repaired: dict[str, int] = {}
    """Kind → how many were repaired."""
    left: dict[str, int] = {}
    """Kind → how many could not be repaired, or not now."""

    @property
    def found(self) -> int:
        return sum(self.counts.values())


class Audit(msgspec.Struct, frozen=True):
    """One audit, asked for or periodic."""

    id: str
    asked_at: int
    asked_by: str
    asked: AuditRequest
    status: AuditStatus
    began_at: int | None = None
    ended_at: int | None = None
    why: str = ""
    """Why it failed."""
    report: AuditReport = AuditReport()


class FindingKind(NamedTuple):
    description: str
    repair: str
    """What a repair does; of kinds that are never repaired, what a person can do."""
    repairable: bool = True
    is_critical: bool = False
    """Data may be destroyed as long as it is so: reports list it first."""


HEAL = "the claim is made to say what the server and its ports have"
LOOK = "check it; nothing is done to it"

KINDS: Mapping[str, FindingKind] = {
    # records and mappings
    "mapping_missing": FindingKind(
        "a cell has a record of a server that the region does not know", "the region learns of it"
    ),
    "mapping_wrong_cell": FindingKind(
        "the region has a server in a cell that is not the one with its record", "the mapping"
    ),
    "record_in_two_cells": FindingKind("two cells have a record of one server", "the older record goes"),
    "hidden_record_left": FindingKind(
        "a sealed record is left of a server that is shown elsewhere, was deleted, or is not moved by anybody",
        "it is hidden, and removed once nobody needs it; of a server that is shown there, it takes writes again",
    ),
    "hidden_record_missing": FindingKind(
        "the region says that a cell has a record that is not shown, and it has none", "the region forgets it"
    ),
    "record_missing": FindingKind(
        "the cell of a server does not have its record", "restore the cell's database", False
    ),
    "server_doubtful": FindingKind(
        "a server's record and the region's numbers contradict each other: a database went back",
        "the record names the host on which the server's claim and its guest are",
    ),
    "record_deleted_mapping_live": FindingKind(
        "a record is deleted, and the region does not know it", "the region is informed"
    ),
    "mapping_deleted_record_live": FindingKind(
        "the region knows that a server is deleted, and its record does not", "the record"
    ),
    "build_request_left": FindingKind("an order is kept though its server has a record", "the order goes"),
    "task_state_left": FindingKind("a server shows a task that no operation does", "the task state is cleared"),
    "building_without_operation": FindingKind(
        "a server is in BUILD, and no operation builds it", "it is shown in ERROR"
    ),
    "slot_left": FindingKind("an operation that has ended still holds a server", "the server is released"),
    "operation_without_server": FindingKind("an open operation does not hold its server", LOOK, False),
    "migration_left_open": FindingKind("a migration is open, and no operation is at it", "it is recorded as failed"),
    "deleted_record_old": FindingKind("records of long deleted servers are kept", "they are forgotten"),
    "fence_left": FindingKind("a cell keeps a fence of an unknown server", "it is forgotten"),
    # claims
    "allocation_missing": FindingKind("a server on a host has no allocation there", HEAL),
    "allocation_amounts_wrong": FindingKind("an allocation is not what the flavor asks", HEAL),
    "allocation_wrong_host": FindingKind("a server holds resources of a host that it is not on", HEAL),
    "allocation_orphaned": FindingKind("a claim of no server, or of one that is on no host", "the claim is released"),
    "allocation_owner_wrong": FindingKind("a claim is not in its server's project and user, or on its host", HEAL),
    "shelved_holds_host": FindingKind("a server that is shelved and offloaded holds resources of a host", HEAL),
    "port_allocation_missing": FindingKind("what a port is guaranteed is not claimed", HEAL),
    "port_allocation_wrong": FindingKind("the claim for a port's guarantee has the wrong amount", HEAL),
    "port_allocation_wrong_provider": FindingKind("a guarantee is claimed of a provider that no port names", HEAL),
    "address_claim_missing": FindingKind("an address of a segment is not claimed", HEAL),
    "address_claim_orphaned": FindingKind("an address of a segment is claimed that no port has", HEAL),
    "migration_allocation_orphaned": FindingKind("a move that has ended holds resources", "they are released"),
    "migration_allocation_unknown": FindingKind("a move without a record holds resources", LOOK, False),
    "allocation_owner_unknown": FindingKind(
        "a claim for a server that is deleted or unknown was written through Placement's API",
        "find out whose it is, and delete it there",
        False,
    ),
    "usage_drifted": FindingKind("a counter is not the sum of its allocations", "the counter is summed again"),
    # ports
    "port_orphaned": FindingKind("a port of ours names a server that does not have it", "it is deleted"),
    "port_not_let_go": FindingKind("a user's port names a server that does not have it", "it is released"),
    "port_owner_unknown": FindingKind(
        "a port for a server names a device that is no server", "find out whose it is, and delete it there", False
    ),
    "port_missing": FindingKind(
        "a server's port is not there", "its card is unplugged, if the network service says it is gone"
    ),
    "port_bound_elsewhere": FindingKind(
        "a port is bound to another host than its server's", "it is bound to that host"
    ),
    "port_unbound": FindingKind("a port of a server on a host is not bound", "it is bound to that host"),
    "port_bound_of_shelved": FindingKind("a port of a server that is on no host is bound", "it is taken off that host"),
    "port_taken_by_other": FindingKind("a server's port names another device", LOOK, False),
    "port_addresses_differ": FindingKind(
        "a server shows other addresses than its port has", "the record is brought up to date"
    ),
    "port_profile_wrong": FindingKind(
        "a binding does not name the providers of a guarantee", "it names those that are claimed"
    ),
    "port_binding_left": FindingKind("an inactive binding is left of a move that has ended", "it is deleted"),
    # volumes and images
    "attachment_orphaned": FindingKind("an attachment names a server that does not have it", "it is deleted"),
    "volume_reserved": FindingKind(
        "a volume is reserved for a server that does not have it", "the reservation is deleted"
    ),
    "attachment_missing": FindingKind(
        "a server's volume has no such attachment", "detach and attach the volume", False
    ),
    "attachment_owner_unknown": FindingKind(
        "an attachment is for a server that nobody knows", "find out whose it is, and delete it there", False
    ),
    "attachment_unfinished": FindingKind("an attachment that a server has is half made", "it is completed"),
    "attachment_elsewhere": FindingKind(
        "an attachment that a server's record lists is exported to another host than the server's",
        "find out on which host its guest runs before anything is detached: the record may be of an earlier time",
        False,
        is_critical=True,
    ),
    "volume_detaching_left": FindingKind(
        "a volume is shown as detaching, and no operation detaches it", "it is in use again"
    ),
    "volume_intent_left": FindingKind("volumes were begun for a server that was never accepted", "they are deleted"),
    "volume_snapshot_left": FindingKind(
        "a volume's snapshot was made for an image that is not there", "delete it, if its data is not needed", False
    ),
    "image_left_half_made": FindingKind(
        "an image that Moorage made is incomplete, and no operation fills it", "it is deleted"
    ),
    "image_of_shelved_left": FindingKind("the image of a shelved disk belongs to no server", "it is deleted"),
    "image_of_move_left": FindingKind(
        "the image through which a disk was moved is left of a move that is over", "it is deleted"
    ),
    # hosts
    "guest_orphaned": FindingKind(
        "a host has a guest of a server that was deleted", "the host is informed, and destroys it"
    ),
    "guest_unknown": FindingKind("a host has an unknown guest", LOOK, False),
    "guest_elsewhere": FindingKind(
        "a host has a guest of a server that is elsewhere", "the host is informed, and destroys it"
    ),
    "guest_on_two_hosts": FindingKind(
        "two hosts have a guest of one server", "the host that is not the server's is informed"
    ),
    "guest_missing": FindingKind("a server's host does not have its guest", "rebuild or hard reboot it", False),
    # devices of guests
    "guest_volume_of_other": FindingKind(
        "a guest has a volume that is attached to another server, and not to its own",
        "it is taken out of the guest",
        is_critical=True,
    ),
    "guest_volume_replaced": FindingKind(
        "a guest has another volume in the place of one that its server's record lists",
        "it is recorded, if it is attached to the server and exported to its host",
        is_critical=True,
    ),
    "guest_volume_unrecorded": FindingKind(
        "a guest has a volume that its server's record does not list",
        "it is recorded, if it is attached to the server and exported to its host; if it is attached to nobody, it is taken out of the guest",
    ),
    "guest_volume_missing": FindingKind(
        "a guest lacks a volume that its server's record lists",
        "it is plugged in again, if its attachment is exported to the host",
    ),
    "guest_interface_unrecorded": FindingKind(
        "a guest has an interface that its server's record does not list",
        "it is recorded, if its port names the server and is bound to the host; if its port is nobody's, another's or gone, it is unplugged",
    ),
    "guest_interface_missing": FindingKind(
        "a guest lacks an interface that its server's record lists",
        "it is plugged in again, if its port names the server and is bound to the host",
    ),
    # counted by project, and what is only kept for a time
    "quota_usage_wrong": FindingKind("a project's quota is not what its servers weigh", "it is counted again"),
    "quota_user_usage_wrong": FindingKind("a user's quota is not what their servers weigh", "it is counted again"),
    "console_tokens_expired": FindingKind(
        "tokens of consoles are kept though their time is over", "they are forgotten"
    ),
    "events_left": FindingKind("events that no operation waited for are kept", "they are forgotten"),
}

OF_ALLOCATIONS = tuple(
    kind
    for kind in KINDS
    if kind.startswith(("allocation_", "port_allocation_", "address_claim_"))
    or kind in {"shelved_holds_host", "port_profile_wrong"}
)
"""What `moorage heal-allocations` looks at."""
OF_PORTS_ALLOCATIONS = frozenset(kind for kind in OF_ALLOCATIONS if kind.startswith(("port_", "address_")))
