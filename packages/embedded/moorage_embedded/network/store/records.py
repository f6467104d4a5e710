"""Documents of every noun, ports among them, and what surrounds a port that is being made or bound."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias, cast

import msgspec
import sqlalchemy as sa

from moorage.sql import Tx
from moorage_embedded.network.store.tables import addresses, ports, records, shares

Doc: TypeAlias = dict[str, Any]

_decode = msgspec.json.Decoder(dict[str, Any]).decode
QUESTIONS_MAX = 500
"""Of `many`: which columns were asked for, and whether for a project, from somewhere on, and how many."""

_encode = msgspec.json.Encoder().encode

_FIND = sa.select(records.c.doc).where(records.c.id == sa.bindparam("id"), records.c.noun == sa.bindparam("noun"))
_FIND_PORT = sa.select(ports.c.doc).where(ports.c.id == sa.bindparam("id"))
_GET, _GET_LOCKED = _FIND, _FIND.with_for_update()
_GET_PORT, _GET_PORT_LOCKED = _FIND_PORT, _FIND_PORT.with_for_update()
_ADD = sa.insert(records)
_ADD_PORT = sa.text(
    "INSERT INTO network_ports (id, project, network, mac, device, owner, host, doc) VALUES"
    " (:id, :project, :network, :mac, :device, :owner, :host, :doc) ON CONFLICT DO NOTHING RETURNING id"
)
_PUT = (
    sa.update(records)
    .where(records.c.id == sa.bindparam("b_id"))
    .values(key=sa.bindparam("b_key"), doc=sa.bindparam("b_doc"), project=sa.bindparam("b_project"))
)
_PUT_PORT = (
    sa.update(ports)
    .where(ports.c.id == sa.bindparam("b_id"))
    .values({name: sa.bindparam(f"b_{name}") for name in ("mac", "device", "owner", "host", "doc")})
)
_REMOVE = sa.delete(records).where(records.c.id == sa.bindparam("b_id"))
_REMOVE_PORT = sa.delete(ports).where(ports.c.id == sa.bindparam("b_id")).returning(ports.c.id)
_MAC_TAKEN = sa.select(ports.c.id).where(ports.c.network == sa.bindparam("network"), ports.c.mac == sa.bindparam("mac"))

_AROUND = sa.union_all(
    sa.select(records.c.noun, records.c.key, records.c.doc).where(
        records.c.id.in_(sa.bindparam("ids", expanding=True))
    ),
    sa.select(records.c.noun, records.c.key, records.c.doc).where(
        records.c.parent == sa.bindparam("network"), records.c.noun.in_(["subnet", "segment"])
    ),
    sa.select(records.c.noun, records.c.key, records.c.doc).where(
        records.c.noun == "security_group", records.c.key == sa.bindparam("default_group")
    ),
    sa.select(records.c.noun, records.c.key, records.c.doc).where(
        records.c.noun == "agent", records.c.key == sa.bindparam("host")
    ),
)


@dataclass
class Surroundings:
    """What a port's verbs need to know of its services, read in one statement."""

    network: Doc | None = None
    subnets: list[Doc] = field(default_factory=list)
    segments: list[Doc] = field(default_factory=list)
    agent: Doc | None = None
    default_group: Doc | None = None
    others: dict[str, Doc] = field(default_factory=dict)


def text_of(doc: Doc) -> str:
    return _encode(doc).decode()


class DocumentRecords:
    """Reads and writes documents by noun."""

    def __init__(self, tx: Tx) -> None:
        self.tx = tx

    def get(self, noun: str, id: str, *, lock: bool = False) -> Doc | None:
        plain, locked = (_GET_PORT, _GET_PORT_LOCKED) if noun == "port" else (_GET, _GET_LOCKED)
        found = self.tx.scalar(locked if lock else plain, {"id": id} if noun == "port" else {"id": id, "noun": noun})
        return None if found is None else _decode(found)

    def add(self, noun: str, doc: Doc, *, parent: str = "", key: str = "", id: str | None = None) -> None:
        """Raises IntegrityError for a taken id, which cannot happen with our random ids."""
        self.tx.run(
            _ADD,
            {
                "id": id or doc["id"],
                "noun": noun,
                "project": doc.get("project_id") or "",
                "parent": parent,
                "key": key,
                "doc": text_of(doc),
            },
        )

    def put(self, noun: str, doc: Doc, *, key: str = "", id: str | None = None) -> None:
        """Write a document that was read with `lock=True` in this transaction."""
        if noun == "port":
            self.tx.run(_PUT_PORT, {f"b_{name}": value for name, value in _port_row(doc).items()})
            return
        self.tx.run(
            _PUT,
            {"b_id": id or doc["id"], "b_key": key, "b_doc": text_of(doc), "b_project": doc.get("project_id") or ""},
        )

    def remove(self, noun: str, id: str) -> None:
        if noun == "port":
            self.tx.run(_REMOVE_PORT, {"b_id": id})
        else:
            self.tx.run(_REMOVE, {"b_id": id})

    def add_port(self, doc: Doc) -> bool:
        """False when (network, MAC) is taken."""
        return bool(self.tx.rows(_ADD_PORT, _port_row(doc)))

    def mac_holder(self, network: str, mac: str) -> str | None:
        return cast("str | None", self.tx.scalar(_MAC_TAKEN, {"network": network, "mac": mac}))

    def around(self, network: str, host: str, default_group: str, others: Iterable[str] = ()) -> Surroundings:
        """The network, its subnets and segments, the host's agent, the project's default group, and `others` by id."""
        found = Surroundings()
        rows = self.tx.rows(
            _AROUND,
            {"ids": [network, *others], "network": network, "default_group": default_group, "host": host},
        )
        for noun, key, text in rows:
            doc = _decode(text)
            if noun == "subnet":
                found.subnets.append(doc)
            elif noun == "segment":
                found.segments.append(doc)
            elif noun == "agent":
                found.agent = doc
            elif noun == "network" and doc["id"] == network:
                found.network = doc
            else:
                found.others[doc["id"]] = doc
                if key and key == default_group:
                    found.default_group = doc
        return found

    def many(
        self,
        noun: str,
        *,
        where: Mapping[str, Sequence[str]] | None = None,
        seen_by: str | None = None,
        after: str = "",
        limit: int | None = None,
    ) -> list[Doc]:
        """Documents by id; `where` names columns, or `address`/`subnet` of a port; `seen_by` is a project."""
        asked: dict[str, Any] = {f"b_in_{column}": list(values) for column, values in (where or {}).items()}
        given = {
            "b_noun": None if noun == "port" else noun,
            "b_seen_by": seen_by,
            "b_after": after or None,
            "b_most": limit,
        }
        asked |= {name: value for name, value in given.items() if value is not None}
        question = _many(noun, tuple(where or ()), seen_by is not None, bool(after), limit is not None)
        return [_decode(text) for (text,) in self.tx.rows(question, asked)]

    def children(self, noun: str, parent: str) -> list[Doc]:
        return self.many(noun, where={"parent": [parent]})

    def first_port(self, *conditions: tuple[str, Sequence[str]]) -> Doc | None:
        found = self.many("port", where=dict(conditions), limit=1)
        return found[0] if found else None

    def mentioned(self, noun: str, word: str) -> Doc | None:
        """A document of `noun` in whose text `word` (an id) occurs: what forbids deleting it."""
        found = self.all_mentioning(noun, word, limit=1)
        return found[0] if found else None

    def all_mentioning(self, noun: str, word: str, *, limit: int | None = None) -> list[Doc]:
        table = ports if noun == "port" else records
        query = sa.select(table.c.doc).where(table.c.doc.like(f'%"{word}"%'))
        if table is records:
            query = query.where(records.c.noun == noun)
        return [_decode(text) for (text,) in self.tx.rows(query if limit is None else query.limit(limit))]


def _port_row(doc: Doc) -> dict[str, Any]:
    return {
        "id": doc["id"],
        "project": doc["project_id"],
        "network": doc["network_id"],
        "mac": doc["mac_address"],
        "device": doc["device_id"],
        "owner": doc["device_owner"],
        "host": doc["binding:host_id"],
        "doc": text_of(doc),
    }


@lru_cache(maxsize=QUESTIONS_MAX)
def _many(noun: str, where: tuple[str, ...], seen: bool, after: bool, limited: bool) -> sa.Executable:
    """Documents by id; the same few questions are asked all the time."""
    table = ports if noun == "port" else records
    query = sa.select(table.c.doc).order_by(table.c.id)
    if table is records:
        query = query.where(records.c.noun == sa.bindparam("b_noun"))
    for column in where:
        query = query.where(_narrow(table, column, sa.bindparam(f"b_in_{column}", expanding=True)))
    if seen:
        query = query.where(_visible(noun, sa.bindparam("b_seen_by", type_=sa.String)))
    if after:
        query = query.where(table.c.id > sa.bindparam("b_after"))
    if limited:
        query = query.limit(sa.bindparam("b_most", type_=sa.Integer))
    return query


def _narrow(table: sa.Table, column: str, values: sa.BindParameter[Any]) -> sa.ColumnElement[bool]:
    if column == "address":
        return ports.c.id.in_(sa.select(addresses.c.port).where(addresses.c.address.in_(values)))
    if column == "subnet":
        return ports.c.id.in_(sa.select(addresses.c.port).where(addresses.c.subnet.in_(values)))
    return table.c[column].in_(values)


def _shared(noun: str, project: sa.BindParameter[str]) -> sa.Select[Any]:
    return sa.select(shares.c.object).where(
        shares.c.noun == noun, sa.or_(shares.c.target == project, shares.c.target == "*")
    )


def _visible(noun: str, project: sa.BindParameter[str]) -> sa.ColumnElement[bool]:
    """Rows that a project's reader may see: its own, what is shared, and what lies on its own networks."""
    own = sa.select(records.c.id).where(records.c.noun == "network", records.c.project == project)
    if noun == "port":
        return sa.or_(ports.c.project == project, ports.c.network.in_(own))
    if noun == "subnet":
        return sa.or_(
            records.c.project == project, records.c.parent.in_(own), records.c.parent.in_(_shared("network", project))
        )
    return sa.or_(records.c.project == project, records.c.id.in_(_shared(noun, project)))
