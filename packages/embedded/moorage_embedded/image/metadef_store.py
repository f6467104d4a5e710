"""The SQL of metadata definitions that were written over HTTP. A namespace is two JSON texts: what lists show of it, and the rest."""

from collections.abc import Iterable

import msgspec
import sqlalchemy as sa

from moorage.sql import Tx, alone, upsert
from moorage_embedded.image.faults import too_large
from moorage_embedded.image.metadef_records import Json, MetadefNamespace, NamespaceContents, NamespaceHeader
from moorage_embedded.image.store import metadef_namespaces as namespaces
from moorage_embedded.image.store import metadef_resource_types as resource_types

NAMESPACES_MAX = 1000
RESOURCE_TYPES_MAX = 1000
CONTENTS_MAX_BYTES = 1024 * 1024
"""Of all definitions of one namespace."""

_encode = msgspec.json.Encoder().encode
_header = msgspec.json.Decoder(NamespaceHeader).decode
_contents = msgspec.json.Decoder(NamespaceContents).decode


def _texts(namespace: MetadefNamespace) -> Json:
    texts = {"header": _encode(namespace.header), "contents": _encode(namespace.contents)}
    if sum(map(len, texts.values())) > CONTENTS_MAX_BYTES:
        raise too_large(f"The definitions of one namespace may have {CONTENTS_MAX_BYTES} bytes together.")
    return {name: text.decode() for name, text in texts.items()}


def headers(tx: Tx) -> list[NamespaceHeader]:
    return [_header(text) for (text,) in tx.rows(sa.select(namespaces.c.header))]


def names(tx: Tx) -> set[str]:
    return {name for (name,) in tx.rows(sa.select(namespaces.c.name))}


def show(tx: Tx, name: str, *, hold: bool = False) -> MetadefNamespace | None:
    """The namespace; `hold` keeps others from changing it until the commit."""
    asked = sa.select(namespaces.c.header, namespaces.c.contents).where(namespaces.c.name == name)
    row = tx.row(asked.with_for_update() if hold else asked)
    return None if row is None else MetadefNamespace(_header(row.header), _contents(row.contents))


def add(tx: Tx, namespace: MetadefNamespace) -> bool:
    """False when there is one of that name. Raises HttpFault (413) when there are too many, or it is too large."""
    alone(tx, "image_metadef_namespaces")
    if tx.scalar(sa.select(sa.func.count()).select_from(namespaces)) >= NAMESPACES_MAX:
        raise too_large(f"There may be {NAMESPACES_MAX} namespaces of metadata definitions at most.")
    return _insert(tx, namespace)


def _insert(tx: Tx, namespace: MetadefNamespace) -> bool:
    row = {"name": namespace.header.name, **_texts(namespace)}
    insert = upsert(tx.dialect, namespaces, row, key=["name"], change=[]).returning(namespaces.c.name)
    return tx.row(insert) is not None


def put(tx: Tx, name: str, namespace: MetadefNamespace) -> bool:
    """Write a changed namespace, which was called `name`. False when its new name is another's. Raises HttpFault (413)."""
    if namespace.header.name == name:
        tx.run(sa.update(namespaces).where(namespaces.c.name == name).values(_texts(namespace)))
        return True
    if not _insert(tx, namespace):
        return False
    remove(tx, name)
    return True


def remove(tx: Tx, name: str) -> None:
    tx.run(sa.delete(namespaces).where(namespaces.c.name == name))


def add_resource_types(tx: Tx, wanted: Iterable[str], at: str) -> None:
    """Types stay when nothing is associated with them any more, as in Glance. Raises HttpFault (413) when there are too many."""
    rows = [{"name": name, "created_at": at} for name in sorted(set(wanted))]
    if not rows:
        return
    tx.run(upsert(tx.dialect, resource_types, rows, key=["name"], change=[]))
    if tx.scalar(sa.select(sa.func.count()).select_from(resource_types)) > RESOURCE_TYPES_MAX:
        raise too_large(f"There may be {RESOURCE_TYPES_MAX} resource types at most.")


def all_resource_types(tx: Tx) -> dict[str, str]:
    """Name → when it was made."""
    return {row.name: row.created_at for row in tx.rows(sa.select(resource_types))}
