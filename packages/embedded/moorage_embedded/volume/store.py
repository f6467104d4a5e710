"""All the SQL of the embedded volume service: documents, with the columns that are filtered, counted or sorted by.

Quotas in use are counted from the volumes and snapshots themselves, so they cannot drift; `alone` keeps two creators of one
project apart while they count.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import msgspec
import sqlalchemy as sa

from moorage.sql import Tx, alone, upsert
from moorage.sql.migrate import Tree

Doc: TypeAlias = dict[str, Any]

metadata = sa.MetaData()
TABLES = Tree("embedded_volume", metadata, Path(__file__).parent / "revisions")

records = sa.Table(
    "volume_records",
    metadata,
    sa.Column("noun", sa.String(20), primary_key=True),
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("project", sa.String(255), nullable=False),
    # Of an attachment and a snapshot: the volume; of a group snapshot: the group.
    sa.Column("parent", sa.String(64), nullable=False),
    # What it is found by beside its id: a name, or of an attachment the server.
    sa.Column("key", sa.String(255), nullable=False),
    sa.Column("status", sa.String(40), nullable=False),
    sa.Column("type", sa.String(64), nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    # To the microsecond: what was made in one second is listed in the order it was made in.
    sa.Column("born", sa.String(32), nullable=False),
    # There is work to do on it, or to go on with after a restart.
    sa.Column("busy", sa.Boolean, nullable=False),
    sa.Column("doc", sa.Text, nullable=False),
    # Of a volume: its group; of a snapshot: its group snapshot.
    sa.Column("member_of", sa.String(64), nullable=False, server_default=""),
    sa.Index("volume_records_by_birth", "noun", "born", "id"),
    sa.Index("volume_records_by_project", "noun", "project", "born", "id"),
    sa.Index("volume_records_by_parent", "parent", "noun"),
    sa.Index("volume_records_by_key", "noun", "key"),
    sa.Index("volume_records_by_group", "member_of", "noun"),
)

quotas = sa.Table(
    "volume_quotas",
    metadata,
    # A project, or `class:` and the name of a class.
    sa.Column("project", sa.String(255), primary_key=True),
    sa.Column("resource", sa.String(300), primary_key=True),
    sa.Column("cap", sa.BigInteger, nullable=False),
)

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode

_FIND = sa.select(records.c.doc).where(records.c.noun == sa.bindparam("noun"), records.c.id == sa.bindparam("id"))
_GET, _HOLD = _FIND, _FIND.with_for_update()
_ADD = sa.insert(records)
_CHANGED = ("project", "key", "status", "type", "size", "busy", "doc", "member_of")
_PUT = (
    sa.update(records)
    .where(records.c.noun == sa.bindparam("b_noun"), records.c.id == sa.bindparam("b_id"))
    .values({name: sa.bindparam(f"b_{name}") for name in _CHANGED})
)
_REMOVE = sa.delete(records).where(records.c.noun == sa.bindparam("b_noun"), records.c.id == sa.bindparam("b_id"))
_CHILDREN = (
    sa.select(records.c.doc)
    .where(records.c.parent == sa.bindparam("parent"), records.c.noun == sa.bindparam("noun"))
    .order_by(records.c.born, records.c.id)
)
_MEMBERS = (
    sa.select(records.c.doc)
    .where(records.c.member_of == sa.bindparam("member_of"), records.c.noun == sa.bindparam("noun"))
    .order_by(records.c.born, records.c.id)
)
_PARENTS = {"group_snapshot": "group_id"}
_TYPES = {"group": "group_type_id", "group_snapshot": "group_type_id"}
_GROUPS = {"volume": "group_id", "snapshot": "group_snapshot_id"}


def _row(noun: str, doc: Doc) -> dict[str, Any]:
    key = doc["instance"] or "" if noun == "attachment" else doc.get("name") or ""
    return {
        "noun": noun,
        "id": doc["id"],
        "project": doc.get("project_id") or "",
        "parent": doc.get(_PARENTS.get(noun, "volume_id")) or "",
        "key": key,
        "status": doc.get("status") or "",
        "type": doc.get(_TYPES.get(noun, "volume_type_id")) or "",
        "size": doc.get("size") or 0,
        "born": doc["created_at"],
        "busy": bool(doc.get("work")),
        "doc": _encode(doc).decode(),
        "member_of": doc.get(_GROUPS.get(noun, "")) or "",
    }


class VolumeStore:
    """What a verb is given of the database, inside one transaction."""

    def __init__(self, tx: Tx) -> None:
        self.tx = tx

    def get(self, noun: str, id: str, *, hold: bool = False) -> Doc | None:
        """The document; `hold` keeps others from changing it until the commit."""
        text = self.tx.scalar(_HOLD if hold else _GET, {"noun": noun, "id": id})
        return None if text is None else _decode(text)

    def add(self, noun: str, doc: Doc) -> None:
        self.tx.run(_ADD, _row(noun, doc))

    def put(self, noun: str, doc: Doc) -> None:
        """Write a document that was read with `hold` in this transaction."""
        row = _row(noun, doc)
        self.tx.run(_PUT, {f"b_{name}": row[name] for name in ("noun", "id", *_CHANGED)})

    def remove(self, noun: str, id: str) -> None:
        self.tx.run(_REMOVE, {"b_noun": noun, "b_id": id})

    def children(self, noun: str, parent: str) -> list[Doc]:
        """What belongs to a volume or a group, in the order it was made."""
        return [_decode(text) for (text,) in self.tx.rows(_CHILDREN, {"parent": parent, "noun": noun})]

    def members(self, noun: str, group: str) -> list[Doc]:
        """The volumes of a group, or the snapshots of a group snapshot, in the order they were made."""
        return [_decode(text) for (text,) in self.tx.rows(_MEMBERS, {"member_of": group, "noun": noun})]

    def children_of(self, noun: str, parents: Sequence[str]) -> dict[str, list[Doc]]:
        """The same of many."""
        found: dict[str, list[Doc]] = {each: [] for each in parents}
        if parents:
            query = sa.select(records.c.parent, records.c.doc).where(
                records.c.noun == noun, records.c.parent.in_(parents)
            )
            for parent, text in self.tx.rows(query.order_by(records.c.born, records.c.id)):
                found[parent].append(_decode(text))
        return found

    def many(
        self,
        noun: str,
        *,
        where: Mapping[str, Any] | None = None,
        after: str | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[Doc]:
        """Documents, the youngest first; `after` is the id of the last one seen. Raises KeyError for one that is not."""
        query = sa.select(records.c.doc).where(records.c.noun == noun)
        for column, value in (where or {}).items():
            query = query.where(
                records.c[column].in_(value) if isinstance(value, list | tuple | set) else records.c[column] == value
            )
        if after is not None:
            born = self.tx.scalar(sa.select(records.c.born).where(records.c.noun == noun, records.c.id == after))
            if born is None:
                raise KeyError(after)
            query = query.where(sa.or_(records.c.born < born, sa.and_(records.c.born == born, records.c.id < after)))
        query = query.order_by(records.c.born.desc(), records.c.id.desc())
        if limit is not None:
            query = query.limit(limit).offset(offset)
        return [_decode(text) for (text,) in self.tx.rows(query)]

    def count(self, noun: str, **where: Any) -> int:
        query = sa.select(sa.func.count()).where(records.c.noun == noun)
        return cast("int", self.tx.scalar(query.where(*(records.c[name] == value for name, value in where.items()))))

    def busy(self, noun: str) -> list[Doc]:
        """What a process that ended left to be done."""
        query = sa.select(records.c.doc).where(records.c.noun == noun, records.c.busy.is_(True))
        return [_decode(text) for (text,) in self.tx.rows(query.order_by(records.c.born, records.c.id))]

    def ids(self, noun: str) -> set[str]:
        return {id for (id,) in self.tx.rows(sa.select(records.c.id).where(records.c.noun == noun))}

    # ------------------------------------------------------------------------------------------------ quotas

    def alone(self, project: str) -> None:
        """Lock the counts of this project until the commit."""
        alone(self.tx, f"volume quota {project}")

    def usage(self, project: str) -> dict[tuple[str, str], tuple[int, int]]:
        """(kind, type) → how many volumes or snapshots, and their GiB."""
        query = (
            sa.select(records.c.noun, records.c.type, sa.func.count(), sa.func.sum(records.c.size))
            .where(records.c.noun.in_(["volume", "snapshot"]), records.c.project == project)
            .group_by(records.c.noun, records.c.type)
        )
        return {(noun, type): (int(many), int(size)) for noun, type, many, size in self.tx.rows(query)}

    def caps(self, project: str) -> dict[str, int]:
        """The limits that were set for this project (or class)."""
        rows = self.tx.rows(sa.select(quotas.c.resource, quotas.c.cap).where(quotas.c.project == project))
        return {resource: int(cap) for resource, cap in rows}

    def set_caps(self, project: str, caps: Mapping[str, int]) -> None:
        for resource, cap in caps.items():
            row = {"project": project, "resource": resource, "cap": cap}
            self.tx.run(upsert(self.tx.dialect, quotas, row, key=["project", "resource"]))

    def drop_caps(self, project: str, resources: Iterable[str] | None = None) -> None:
        gone = sa.delete(quotas).where(quotas.c.project == project)
        self.tx.run(gone if resources is None else gone.where(quotas.c.resource.in_(list(resources))))
