"""Checks the region's mappings against the cells' records, and migrations against operations."""

from collections.abc import Iterator

from moorage.conductor.audit.finding_builder import finding
from moorage.conductor.audit.snapshot import ServicesSnapshot, SnapshotPage
from moorage.model.audit import Finding
from moorage.model.ids import CellId, ServerId
from moorage.model.migration import MigrationStatus
from moorage.model.server import VmState
from moorage.store.region.audit_reads import Mapped


def mappings(page: SnapshotPage, site: ServicesSnapshot) -> Iterator[Finding]:
    """Findings about the region's cell of a server, and the cell of its record."""
    for id in sorted(page.mapped.keys() | page.records.keys()):
        where = page.mapped.get(id)
        rows = page.records.get(id, [])
        if where is not None and where.operation is None:
            yield from _hidden(page, where, site)
        sealed = page.sealed.get(id, ())
        rows = [row for row in rows if row[0] not in sealed or (where is not None and row[0] == where.cell)]
        cells = ", ".join(cell for cell, _ in rows)
        if where is None:
            if not rows:
                continue
            yield finding("mapping_missing", id, "region", id, found=f"a record in {cells}")
        elif where.operation is not None:
            continue
        elif len(rows) > 1:
            yield finding("record_in_two_cells", id, cells, id, expected=where.cell, found=cells)
        elif rows:
            yield from _of_one(where, rows[0][0], site)
        else:
            yield from _without(page, where, site)


def _hidden(page: SnapshotPage, where: Mapped, site: ServicesSnapshot) -> Iterator[Finding]:
    """For a server that moved into another cell: the region's row about the hidden record, and the record."""
    id, hidden = where.id, page.hidden.get(where.id, frozenset[CellId]())
    second = {cell for cell, _ in page.second.get(id, [])}
    for cell in page.sealed.get(id, []):
        if cell not in hidden or where.deleted:
            expected = "deleted" if where.deleted else f"shown in {where.cell}"
            yield finding("hidden_record_left", id, cell, id, expected=expected, found="a sealed record")
    for cell in sorted(hidden & site.cells - second - {gone for gone, _ in page.gone.get(id, [])}):
        yield finding("hidden_record_missing", id, cell, id, expected="a record that is not shown", found="none")


def _of_one(where: Mapped, cell: str, site: ServicesSnapshot) -> Iterator[Finding]:
    id = where.id
    if where.deleted:
        yield finding("mapping_deleted_record_live", id, cell, id, expected="deleted", found="a record that lives")
    elif where.cell != cell and (where.cell is None or where.cell in site.cells):
        yield finding("mapping_wrong_cell", id, "region", id, expected=cell, found=where.cell or "no cell")
    elif where.has_order:
        yield finding(
            "build_request_left", id, "region", id, expected="no order", found=f"an order and a record in {cell}"
        )


def _without(page: SnapshotPage, where: Mapped, site: ServicesSnapshot) -> Iterator[Finding]:
    gone = [cell for cell, _ in page.gone.get(where.id, [])]
    if where.recorded_in is None or where.recorded_in not in site.cells:
        return
    if where.recorded_in in gone:
        cell = where.recorded_in
        yield finding(
            "record_deleted_mapping_live", where.id, "region", where.id, expected="deleted", found=f"live in {cell}"
        )
    else:
        yield finding("record_missing", where.id, where.recorded_in, where.id, expected="a record", found="none")


def tasks(page: SnapshotPage, site: ServicesSnapshot) -> Iterator[Finding]:
    """Tasks that servers show while no operation works on them."""
    for where, server in page.settled:
        if server.vm_state is VmState.BUILDING:
            yield finding(
                "building_without_operation",
                server.id,
                str(where.cell),
                server.id,
                expected="an operation",
                found="BUILD",
            )
        elif server.task_state is not None:
            yield finding(
                "task_state_left", server.id, str(where.cell), server.id, expected="", found=server.task_state
            )
    for id, where in page.mapped.items():
        if (
            where.has_order
            and where.operation is None
            and not where.deleted
            and where.vm_state == VmState.BUILDING.value
        ):
            yield finding("building_without_operation", id, "region", id, expected="an operation", found="BUILD")
        if where.slot_left:
            yield finding("slot_left", id, "region", id, expected="no operation", found=where.operation)


def migrations(page: SnapshotPage, site: ServicesSnapshot) -> Iterator[Finding]:
    """Open migrations without an operation, of servers that do not wait for confirm or revert either."""
    for id, moves in page.moves.items():
        where, server = page.mapped.get(id), page.record(id)
        if where is None or where.operation is not None:
            continue
        for each in moves:
            waits = server is not None and server.moved is not None and each.status is MigrationStatus.FINISHED
            waits = waits or each.status is MigrationStatus.DONE  # its host has not returned yet
            held = page.held.get(each.uuid)
            if not waits:
                why_not = (
                    ""
                    if held is None
                    else "it holds resources on the host that the server was to leave: check both hosts"
                )
                yield finding(
                    "migration_left_open",
                    each.uuid,
                    each.source_host,
                    ServerId(id),
                    expected="ended",
                    found=each.status.value,
                    why_not=why_not,
                )
