"""Checks attachments of volumes against records."""

from collections.abc import Iterator

from moorage.conductor.audit.finding_builder import finding
from moorage.conductor.audit.snapshot import ServicesSnapshot, SnapshotPage
from moorage.model.audit import Finding
from moorage.model.ids import ServerId
from moorage.model.volume import ATTACHED, RESERVED


def attachments(page: SnapshotPage, site: ServicesSnapshot) -> Iterator[Finding]:
    """Attachments that name a server which does not have them, and incomplete ones."""
    if site.attachments is None:
        return
    for id, where in page.mapped.items():
        held = site.attachments.get(id, [])
        if (
            not held
            or where.debts
            or where.operation is not None
            or (where.cell is not None and where.cell not in site.cells)
        ):
            continue
        if where.recorded_in is not None and id not in page.records and id not in page.gone:
            continue
        record = page.record(id)
        if record is None and id in page.records:
            continue  # its mapping is wrong, and is repaired first
        listed = {each.attachment for each in record.volumes} if record is not None else set[str | None]()
        for each in held:
            if each.id not in listed:
                kind = "volume_reserved" if each.status == RESERVED else "attachment_orphaned"
                yield finding(
                    kind, each.id, "volume", id, expected="none", found=f"volume {each.volume}, {each.status}"
                )
            elif each.status not in {ATTACHED, RESERVED}:
                yield finding("attachment_unfinished", each.id, "volume", id, expected=ATTACHED, found=each.status)


def volumes(page: SnapshotPage, site: ServicesSnapshot) -> Iterator[Finding]:
    """Findings about the volumes that records list."""
    if site.attachments is None:
        return
    for _, server in page.settled:
        existing = {each.id for each in site.attachments.get(server.id, [])}
        for each in server.volumes:
            if each.attachment is not None and each.attachment not in existing and server.host is not None:
                yield finding(
                    "attachment_missing", str(each.volume), "volume", server.id, expected=each.attachment, found="none"
                )
            host = site.exported.get(str(each.attachment))
            if host is not None and server.host is not None and host != server.host:
                yield finding(
                    "attachment_elsewhere",
                    str(each.attachment),
                    "volume",
                    server.id,
                    expected=f"host {server.host}",
                    found=f"volume {each.volume}, exported to host {host}",
                )
        listed = {each.volume for each in server.volumes}
        for volume in site.going.get(server.id, ()):
            if volume in listed:
                yield finding(
                    "volume_detaching_left", volume, "volume", ServerId(server.id), expected="in-use", found="detaching"
                )
