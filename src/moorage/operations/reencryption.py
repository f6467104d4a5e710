"""Encrypts every stored secret with the region's first key: after the key was changed, and once after an upgrade from a
release that stored secrets in clear.

It reads all records and journals in bounded batches while the region works, and replaces only the texts in which a
secret must be encrypted again. It may be interrupted and started again; what is done stays done.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from moorage.operations.encryption import BEGINS, ENCRYPTED, Encryption
from moorage.sql import Database, Tx, label
from moorage.store import encrypted_columns
from moorage.store.cell.servers import servers as cell_servers
from moorage.store.encrypted_columns import EncryptedColumn, Text
from moorage.store.region.operations import operation_lines, operations
from moorage.store.region.servers import servers as region_servers

BATCH_ROWS = 200
PASSES_MAX = 5
"""A process that writes an old value meanwhile is caught by a later pass."""

OF_REGION = (
    EncryptedColumn(region_servers.c.doc, (region_servers.c.id,)),
    EncryptedColumn(operations.c.asked, (operations.c.id,)),
    EncryptedColumn(operations.c.journal, (operations.c.id,)),
    EncryptedColumn(operation_lines.c.text, (operation_lines.c.operation, operation_lines.c.line)),
)
OF_A_CELL = (EncryptedColumn(cell_servers.c.doc, (cell_servers.c.id,)),)


@dataclass
class RewriteCounts:
    """The counts of one pass."""

    by_key: dict[str, int] = field(default_factory=dict)
    """Secrets, by the name of the key that encrypts them."""
    clear: int = 0
    """Texts with secrets in clear."""
    changed: int = 0
    """Rows that were replaced."""
    overtaken: int = 0
    """Rows that another process wrote at the same moment."""
    lost: int = 0
    """Secrets that none of the keys decrypts."""


async def walk(
    databases: Mapping[str, Database], seals: Encryption, *, change: bool, drop_lost: bool = False
) -> RewriteCounts:
    """Make one pass over all databases (`region`, and the cells by their names). Without `change` it only counts.

    `drop_lost`: remove secrets that cannot be decrypted any more.
    """
    counts = RewriteCounts()
    for name, database in databases.items():
        for place in OF_REGION if name == "region" else OF_A_CELL:
            await _walk(database, place, _Pen(seals, counts, drop_lost), change)
    return counts


async def reencrypt(
    databases: Mapping[str, Database],
    seals: Encryption,
    *,
    drop_lost: bool = False,
    progress: Callable[[RewriteCounts], None],
) -> RewriteCounts:
    """Repeat passes until one finds nothing to change; return the last one's counts."""
    counts = RewriteCounts()
    for _ in range(PASSES_MAX):
        counts = await walk(databases, seals, change=True, drop_lost=drop_lost)
        progress(counts)
        if not counts.changed and not counts.overtaken:
            return counts
    return counts


async def _walk(database: Database, place: EncryptedColumn, pen: "_Pen", change: bool) -> None:
    after: tuple[object, ...] | None = None
    while True:
        with label("secrets"):
            rows = await database.read(lambda tx, at=after: encrypted_columns.page(tx, place, at, BATCH_ROWS))  # type: ignore[misc]
        if not rows:
            return
        after = rows[-1].at
        new = [(row, becomes) for row in rows if (becomes := pen.rewritten(row.text)) != row.text]
        if change and new:
            with label("secrets"):
                done = await database.write(lambda tx, new=new: _exchange(tx, place, new))  # type: ignore[misc]
            pen.found.changed += done
            pen.found.overtaken += len(new) - done


def _exchange(tx: Tx, place: EncryptedColumn, new: Sequence[tuple[Text, str]]) -> int:
    return sum(encrypted_columns.exchange(tx, place, old, becomes) for old, becomes in new)


@dataclass
class _Pen:
    seals: Encryption
    found: RewriteCounts
    drop_lost: bool

    def rewritten(self, text: str) -> str:
        """The JSON (several lines in a journal) with its secrets encrypted by the first key."""
        if BEGINS not in text and '"user_data":"' not in text and '"contents":"' not in text:
            return text
        return "\n".join(self._line(line) if line else line for line in text.split("\n"))

    def _line(self, line: str) -> str:
        document = msgspec.json.decode(line)
        becomes = self._anew(document)
        return line if becomes == document else msgspec.json.encode(becomes).decode()

    def _anew(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._field(value, key, each) for key, each in value.items()}
        return [self._anew(each) for each in value] if isinstance(value, list) else value

    def _field(self, of: dict[str, Any], key: str, value: Any) -> Any:
        """A field is recognized by the object that has it: users' own metadata may have a field of any name, and hold
        no secrets.
        """
        match key, value:
            case "user_data", str() if isinstance(of.get("flavor"), dict):
                return self._users(value)
            case "files", list():
                return [
                    {**each, "contents": self._users(each["contents"]) or ""} if _is_file(each) else each
                    for each in value
                ]
            case "sealed_password", str() if value.startswith(BEGINS):
                return self._encrypted(value) or ""
            case _:
                return self._anew(value)

    def _users(self, value: str) -> str | None:
        if not value.startswith(BEGINS):
            self.found.clear += 1
            return self.seals.user_data(value) if value else value
        again = self._encrypted(value)
        return self.seals.shown(again) if self.seals.clear_user_data else again

    def _encrypted(self, value: str) -> str | None:
        named = ENCRYPTED.fullmatch(value)
        if named is None:
            return value
        key = named[1]
        self.found.by_key[key] = self.found.by_key.get(key, 0) + 1
        if key == self.seals.key:
            return value
        clear = self.seals.open(value)
        if clear is None:
            self.found.lost += 1
            return None if self.drop_lost else value
        return self.seals.seal(clear)


def _is_file(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("contents"), str)
