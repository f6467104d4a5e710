"""Flavors: one row each, with its extra specs and the projects of a private one.

There are few (tens in a cloud), they change rarely and every boot reads one, so a row has everything that a boot needs,
and lists are filtered by their reader.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.model.errors import Conflict, NotFound
from moorage.model.flavor import Flavor
from moorage.model.ids import FlavorId
from moorage.sql import Tx, alone
from moorage.store.region.tables import region_metadata

FLAVORS_MAX = 10_000

flavors = sa.Table(
    "flavors",
    region_metadata,
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("id", sa.String(255), nullable=False, unique=True),
    sa.Column("name", sa.String(255), nullable=False, unique=True),
    sa.Column("vcpus", sa.Integer, nullable=False),
    sa.Column("ram_mib", sa.Integer, nullable=False),
    sa.Column("disk_gib", sa.Integer, nullable=False),
    sa.Column("ephemeral_gib", sa.Integer, nullable=False),
    sa.Column("swap_mib", sa.Integer, nullable=False),
    sa.Column("rxtx_factor", sa.Float, nullable=False),
    sa.Column("is_public", sa.Boolean, nullable=False),
    sa.Column("disabled", sa.Boolean, nullable=False),
    sa.Column("description", sa.Text),
    sa.Column("extra_specs", sa.Text, nullable=False),
    sa.Column("projects", sa.Text, nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("updated_at", sa.BigInteger),
)

_encode = msgspec.json.Encoder().encode
_specs = msgspec.json.Decoder(dict[str, str])
_projects = msgspec.json.Decoder(tuple[str, ...])


def no_such(flavor: str) -> NotFound:
    return NotFound(f"Flavor {flavor} could not be found.")


def add(tx: Tx, new: Flavor) -> Flavor:
    """Insert; the flavor's `number` is assigned here. Raises Conflict when its id or name is taken."""
    alone(tx, "flavors")
    if tx.row(sa.select(flavors.c.number).where(flavors.c.name == new.name)):
        raise Conflict(f"Flavor with name {new.name} already exists.")
    if tx.row(sa.select(flavors.c.number).where(flavors.c.id == new.id)):
        raise Conflict(f"Flavor with ID {new.id} already exists.")
    values = msgspec.structs.asdict(new) | {
        "extra_specs": _encode(new.extra_specs).decode(),
        "projects": _encode(new.projects).decode(),
    }
    del values["number"]
    number = tx.scalar(flavors.insert().values(values).returning(flavors.c.number))
    return msgspec.structs.replace(new, number=number)


def every(tx: Tx) -> Sequence[Flavor]:
    """All flavors, by number (at most 10,000)."""
    return [_flavor(row) for row in tx.rows(sa.select(flavors).order_by(flavors.c.number).limit(FLAVORS_MAX))]


def get(tx: Tx, flavor: str) -> Flavor | None:
    row = tx.row(sa.select(flavors).where(flavors.c.id == flavor))
    return None if row is None else _flavor(row)


def visible(tx: Tx, flavor: str, *, project: str | None, everything: bool) -> Flavor:
    """The flavor, if this project may see it; `everything` is for administrators. Raises NotFound."""
    row = get(tx, flavor)
    if row is None or not (everything or row.usable_by(project)):
        raise no_such(flavor)
    return row


def change(tx: Tx, flavor: str, now: int, how: Callable[[Flavor], Flavor]) -> Flavor:
    """Lock the row, and write what `how` returns for it. Raises NotFound."""
    row = tx.row(sa.select(flavors).where(flavors.c.id == flavor).with_for_update())
    if row is None:
        raise no_such(flavor)
    changed = how(_flavor(row))
    tx.run(
        flavors.update()
        .where(flavors.c.number == row.number)
        .values(
            description=changed.description,
            extra_specs=_encode(changed.extra_specs).decode(),
            projects=_encode(changed.projects).decode(),
            updated_at=now,
        )
    )
    return changed


def remove(tx: Tx, flavor: str) -> None:
    """Remove the flavor; servers keep their copy. Raises NotFound."""
    if tx.row(flavors.delete().where(flavors.c.id == flavor).returning(flavors.c.number)) is None:
        raise no_such(flavor)


def _flavor(row: Any) -> Flavor:
    return Flavor(
        number=row.number,
        id=FlavorId(row.id),
        name=row.name,
        vcpus=row.vcpus,
        ram_mib=row.ram_mib,
        disk_gib=row.disk_gib,
        ephemeral_gib=row.ephemeral_gib,
        swap_mib=row.swap_mib,
        rxtx_factor=row.rxtx_factor,
        is_public=row.is_public,
        disabled=row.disabled,
        description=row.description,
        extra_specs=_specs.decode(row.extra_specs),
        projects=_projects.decode(row.projects),
        created_at=row.created_at,
        updated_at=row.updated_at,
    )
