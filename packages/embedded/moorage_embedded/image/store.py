"""All the SQL of the embedded image service.

An image's row holds the exact text that `GET` returns, and the columns by which lists filter and sort. Null texts are '' and null sizes -1 in those columns: sorting and paging then never meet a null.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec
import sqlalchemy as sa

from moorage.sql import Tx, upsert
from moorage.sql.migrate import Tree

Doc: TypeAlias = dict[str, Any]

metadata = sa.MetaData()
TABLES = Tree("embedded_image", metadata, Path(__file__).parent / "revisions")

images = sa.Table(
    "image_images",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("name", sa.String(255), nullable=False),
    sa.Column("status", sa.String(30), nullable=False),
    sa.Column("visibility", sa.String(20), nullable=False),
    sa.Column("owner", sa.String(255), nullable=False),
    sa.Column("container_format", sa.String(20), nullable=False),
    sa.Column("disk_format", sa.String(20), nullable=False),
    sa.Column("size", sa.BigInteger, nullable=False),
    sa.Column("virtual_size", sa.BigInteger, nullable=False),
    sa.Column("min_disk", sa.BigInteger, nullable=False),
    sa.Column("min_ram", sa.BigInteger, nullable=False),
    sa.Column("protected", sa.Boolean, nullable=False),
    sa.Column("os_hidden", sa.Boolean, nullable=False),
    sa.Column("checksum", sa.String(32), nullable=False),
    sa.Column("os_hash_algo", sa.String(64), nullable=False),
    sa.Column("os_hash_value", sa.String(128), nullable=False),
    sa.Column("created_at", sa.String(20), nullable=False),
    sa.Column("updated_at", sa.String(20), nullable=False),
    # To the microsecond: images made in one second are listed in the order they were made in.
    sa.Column("born", sa.String(32), nullable=False),
    sa.Column("touched", sa.String(32), nullable=False),
    sa.Column("doc", sa.Text, nullable=False),
    sa.Index("image_images_by_birth", "born", "id"),
    sa.Index("image_images_by_owner", "owner"),
    sa.Index("image_images_by_name", "name"),
)

properties = sa.Table(
    "image_properties",
    metadata,
    sa.Column("image", sa.String(36), primary_key=True),
    sa.Column("name", sa.String(255), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)

tags = sa.Table(
    "image_tags",
    metadata,
    sa.Column("image", sa.String(36), primary_key=True),
    sa.Column("tag", sa.String(255), primary_key=True),
)

members = sa.Table(
    "image_members",
    metadata,
    sa.Column("image", sa.String(36), primary_key=True),
    sa.Column("member", sa.String(255), primary_key=True),
    sa.Column("status", sa.String(20), nullable=False),
    sa.Column("created_at", sa.String(20), nullable=False),
    sa.Column("updated_at", sa.String(20), nullable=False),
    sa.Index("image_members_by_member", "member"),
)

# The id of a deleted image is never given to another.
spent = sa.Table("image_spent_ids", metadata, sa.Column("id", sa.String(36), primary_key=True))

metadef_namespaces = sa.Table(
    "image_metadef_namespaces",
    metadata,
    sa.Column("name", sa.String(80), primary_key=True),
    # Two texts, so that a list does not read what is in the namespaces.
    sa.Column("header", sa.Text, nullable=False),
    sa.Column("contents", sa.Text, nullable=False),
)

metadef_resource_types = sa.Table(
    "image_metadef_resource_types",
    metadata,
    sa.Column("name", sa.String(80), primary_key=True),
    sa.Column("created_at", sa.String(20), nullable=False),
)

tasks = sa.Table(
    "image_tasks",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("image", sa.String(255), nullable=False),
    sa.Column("born", sa.String(32), nullable=False),
    sa.Column("expires_at", sa.String(20), nullable=False),  # '' until the task has ended
    sa.Column("doc", sa.Text, nullable=False),
    sa.Index("image_tasks_by_birth", "born"),
    sa.Index("image_tasks_by_image", "image"),
)

WORDS = ("name", "owner", "container_format", "disk_format", "checksum", "os_hash_algo", "os_hash_value")
NUMBERS = ("size", "virtual_size", "min_disk", "min_ram")
SAME = ("id", "status", "visibility", "protected", "os_hidden", "created_at", "updated_at")
BASE = frozenset((*WORDS, *NUMBERS, *SAME, "tags", "self", "file", "schema", "stores"))
SORT_COLUMNS = {"created_at": "born", "updated_at": "touched"}

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode

_FIND = sa.select(images.c.visibility, images.c.owner, images.c.doc).where(images.c.id == sa.bindparam("id"))
_SHOW, _HOLD = _FIND, _FIND.with_for_update()
_PUT = sa.update(images).where(images.c.id == sa.bindparam("b_id"))
_MEMBER = sa.select(members.c.member).where(
    members.c.image == sa.bindparam("image"), members.c.member == sa.bindparam("member")
)
_USED = sa.union_all(
    sa.select(images.c.id).where(images.c.id == sa.bindparam("id")),
    sa.select(spent.c.id).where(spent.c.id == sa.bindparam("id")),
)


class FoundImage(NamedTuple):
    """A row, before it is decided whether the caller may see it."""

    visibility: str
    owner: str
    text: str

    @property
    def doc(self) -> Doc:
        return _decode(self.text)


class Condition(NamedTuple):
    column: str
    operator: str
    value: Any


@dataclass
class ImageQuery:
    """What a list asks for."""

    project: str | None
    everywhere: bool
    limit: int
    conditions: list[Condition] = field(default_factory=list)
    visibility: str | None = None
    member_status: str = "accepted"
    tags: list[str] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    sort: list[tuple[str, bool]] = field(default_factory=list)
    """Column, and whether it descends."""
    marker: str | None = None


class NoMarker(Exception):
    """The marker is no image."""


def _columns(doc: Doc, touched: str) -> dict[str, Any]:
    row: dict[str, Any] = {name: doc[name] for name in SAME}
    row |= {name: doc[name] or "" for name in WORDS}
    row |= {name: -1 if doc[name] is None else doc[name] for name in NUMBERS}
    return row | {"touched": touched, "doc": _encode(doc).decode()}


class ImageTables:
    """What a verb is given of the database, inside one transaction."""

    def __init__(self, tx: Tx) -> None:
        self.tx = tx

    # ------------------------------------------------------------------------------------------------ images

    def show(self, id: str, *, hold: bool = False) -> FoundImage | None:
        """The row; `hold` keeps others from changing it until the commit."""
        row = self.tx.row(_HOLD if hold else _SHOW, {"id": id})
        return None if row is None else FoundImage(*row)

    def add(self, doc: Doc, born: str) -> bool:
        """False when the id is, or was, another image's."""
        if self.tx.row(_USED, {"id": doc["id"]}) is not None:
            return False
        row = _columns(doc, born) | {"born": born}
        insert = upsert(self.tx.dialect, images, row, key=["id"], change=[]).returning(images.c.id)
        if self.tx.row(insert) is None:  # somebody else was quicker
            return False
        self._add_properties_and_tags(doc)
        return True

    def put(self, doc: Doc, touched: str, *, words: bool = False) -> None:
        """Write a changed image; `words` when its tags or properties may have changed."""
        row = _columns(doc, touched)
        self.tx.run(_PUT.values({name: value for name, value in row.items() if name != "id"}), {"b_id": doc["id"]})
        if words:
            self._remove_properties_and_tags(doc["id"])
            self._add_properties_and_tags(doc)

    def remove(self, id: str) -> None:
        self._remove_properties_and_tags(id)
        self.tx.run(sa.delete(members).where(members.c.image == id))
        self.tx.run(sa.delete(images).where(images.c.id == id))
        self.tx.run(sa.insert(spent), {"id": id})

    def _add_properties_and_tags(self, doc: Doc) -> None:
        said = [{"image": doc["id"], "name": k, "value": v} for k, v in doc.items() if k not in BASE]
        if said:
            self.tx.run(sa.insert(properties), said)
        if doc["tags"]:
            self.tx.run(sa.insert(tags), [{"image": doc["id"], "tag": tag} for tag in doc["tags"]])

    def _remove_properties_and_tags(self, id: str) -> None:
        self.tx.run(sa.delete(properties).where(properties.c.image == id))
        self.tx.run(sa.delete(tags).where(tags.c.image == id))

    def find_public(self, name: str) -> Doc | None:
        """The oldest public image with that name; a later image with the same name does not hide it."""
        statement = sa.select(images.c.doc).where(images.c.name == name, images.c.visibility == "public")
        text = self.tx.scalar(statement.order_by(images.c.born, images.c.id).limit(1))
        return None if text is None else _decode(text)

    def in_status(self, status: str) -> list[Doc]:
        rows = self.tx.rows(sa.select(images.c.doc).where(images.c.status == status))
        return [_decode(text) for (text,) in rows]

    def ids(self) -> set[str]:
        return {id for (id,) in self.tx.rows(sa.select(images.c.id))}

    def count(self, owner: str) -> int:
        return cast("int", self.tx.scalar(sa.select(sa.func.count()).where(images.c.owner == owner)))

    def bytes_of(self, owner: str, *, but: str) -> int:
        """Of all images of a project that have data, or have them staged, but this one."""
        total = sa.select(sa.func.coalesce(sa.func.sum(images.c.size), 0))
        return int(self.tx.scalar(total.where(images.c.owner == owner, images.c.size > 0, images.c.id != but)) or 0)

    # ------------------------------------------------------------------------------------------------ lists

    def page(self, query: ImageQuery) -> Sequence[str]:
        """The texts of one page. Raises NoMarker."""
        statement = sa.select(images.c.doc).where(*_seen(query), *(_condition(each) for each in query.conditions))
        for tag in query.tags:
            statement = statement.where(
                sa.exists().where(tags.c.image == images.c.id, tags.c.tag == tag).correlate(images)
            )
        for name, value in query.properties.items():
            statement = statement.where(
                sa.exists()
                .where(properties.c.image == images.c.id, properties.c.name == name, properties.c.value == value)
                .correlate(images)
            )
        order = [(images.c[SORT_COLUMNS.get(name, name)], descends) for name, descends in query.sort]
        if query.marker is not None:
            after = self.tx.row(sa.select(*(column for column, _ in order)).where(images.c.id == query.marker))
            if after is None:
                raise NoMarker
            statement = statement.where(_after(order, after))
        statement = statement.order_by(*(column.desc() if descends else column.asc() for column, descends in order))
        return [text for (text,) in self.tx.rows(statement.limit(query.limit))]

    # ------------------------------------------------------------------------------------------------ members

    def is_member(self, image: str, project: str | None) -> bool:
        return project is not None and self.tx.row(_MEMBER, {"image": image, "member": project}) is not None

    def members(self, image: str) -> list[Doc]:
        return [
            _member(row)
            for row in self.tx.rows(sa.select(members).where(members.c.image == image).order_by(members.c.member))
        ]

    def add_member(self, image: str, member: str, now: str) -> Doc | None:
        """None when it is one already."""
        said = {"image": image, "member": member, "status": "pending", "created_at": now, "updated_at": now}
        insert = upsert(self.tx.dialect, members, said, key=["image", "member"], change=[])
        row = self.tx.row(insert.returning(members))
        return None if row is None else _member(row)

    def set_member(self, image: str, member: str, status: str, now: str) -> Doc | None:
        row = self.tx.row(
            sa.update(members)
            .where(members.c.image == image, members.c.member == member)
            .values(status=status, updated_at=now)
            .returning(members)
        )
        return None if row is None else _member(row)

    def remove_member(self, image: str, member: str) -> bool:
        gone = self.tx.row(
            sa.delete(members).where(members.c.image == image, members.c.member == member).returning(members.c.member)
        )
        return gone is not None


def _member(row: Any) -> Doc:
    return {
        "image_id": row.image,
        "member_id": row.member,
        "status": row.status,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "schema": "/v2/schemas/member",
    }


def _seen(query: ImageQuery) -> Iterable[sa.ColumnElement[bool]]:
    """Which images the caller is shown at all; others' community images only when they are asked for."""
    mine = images.c.owner == (query.project or "")
    if not query.everywhere:
        shared = [members.c.image == images.c.id, members.c.member == (query.project or "")]
        if query.member_status != "all":
            shared.append(members.c.status == query.member_status)
        yield sa.or_(
            images.c.visibility.in_(["public", "community"]),
            mine,
            sa.and_(images.c.visibility == "shared", sa.exists().where(*shared).correlate(images)),
        )
    if query.visibility is None:
        yield sa.or_(images.c.visibility != "community", mine)
    elif query.visibility != "all":
        yield images.c.visibility == query.visibility


_COMPARE: Mapping[str, Callable[[Any, Any], sa.ColumnElement[bool]]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
    "in": lambda column, values: cast("sa.ColumnElement[bool]", column.in_(values)),
}


def _condition(said: Condition) -> sa.ColumnElement[bool]:
    return _COMPARE[said.operator](images.c[said.column], said.value)


def _after(order: Sequence[tuple[Any, bool]], values: Sequence[Any]) -> sa.ColumnElement[bool]:
    """Rows beyond the marker, whichever way each column runs."""
    ways: list[sa.ColumnElement[bool]] = []
    for place, (column, descends) in enumerate(order):
        same = [earlier == values[at] for at, (earlier, _) in enumerate(order[:place])]
        ways.append(sa.and_(*same, column < values[place] if descends else column > values[place]))
    return sa.or_(*ways)
