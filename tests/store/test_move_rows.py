"""What every move writes, on both kinds of databases: its row, which keeps its number, and the moved allocations."""

import msgspec
import sqlalchemy as sa

from moorage.model.ids import ProviderId, ServerId
from moorage.model.migration import Migration, MigrationStatus, MigrationType
from moorage.sql import Database, Tx
from moorage.store.cell import migrations
from moorage.store.cell.tables import cell_metadata
from moorage.store.region import inbox, volume_intents
from moorage.store.region.placement import claim_statements
from moorage.store.region.placement.tables import allocations, placement_metadata
from moorage.store.region.tables import region_metadata

A, B, C = (f"00000000-0000-0000-0000-00000000000{each}" for each in range(3))


async def test_rewriting_a_move_keeps_its_row(database: Database) -> None:
    await database.create(cell_metadata)
    first = Migration(
        uuid=A,
        server=ServerId(B),
        project="project",
        user="user",
        type=next(iter(MigrationType)),
        status=MigrationStatus.MIGRATING,
        source_host="host1",
        created_at=1,
        updated_at=2,
    )
    again = msgspec.structs.replace(first, status=MigrationStatus.FINISHED, dest_host="host2", updated_at=3)

    def work(tx: Tx) -> None:
        migrations.put(tx, first)
        written = migrations.get(tx, A)
        migrations.put(tx, again)
        migrations.put(tx, msgspec.structs.replace(first, uuid=C))
        other = migrations.get(tx, C)
        assert written is not None
        assert other is not None
        assert other.number != written.number
        assert migrations.get(tx, A) == msgspec.structs.replace(again, number=written.number)
        assert migrations.get(tx, B) is None

    await database.write(work)


async def test_allocations_move_between_consumers(database: Database) -> None:
    await database.create(region_metadata)
    await database.create(placement_metadata)
    held = [{"consumer": A, "provider": B, "class": each, "used": 1} for each in ("VCPU", "DISK_GB", "MEMORY_MB")]

    def work(tx: Tx) -> list[tuple[str, str]]:
        tx.run(allocations.insert(), held)
        claim_statements.rename(tx, A, C, [])
        claim_statements.rename(
            tx, A, C, [(ProviderId(B), "VCPU"), (ProviderId(B), "DISK_GB"), (ProviderId(A), "MEMORY_MB")]
        )
        inbox.drop(tx, A, "network-vif-plugged")
        assert volume_intents.old(tx, 1) == []
        rows = tx.rows(sa.select(allocations.c.consumer, allocations.c["class"]))
        return sorted((row[0], row[1]) for row in rows)

    assert await database.write(work) == sorted([(C, "VCPU"), (C, "DISK_GB"), (A, "MEMORY_MB")])
