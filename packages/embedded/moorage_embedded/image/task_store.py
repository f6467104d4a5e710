"""The SQL of tasks. A task's row holds the text that is shown, and the columns by which tasks are found and forgotten."""

from typing import Any

import msgspec
import sqlalchemy as sa

from moorage.sql import Tx, alone
from moorage_embedded.image.faults import too_large
from moorage_embedded.image.store import Doc, tasks

WAITING_MAX = 100
"""Tasks that have not ended."""
TASKS_MAX = 5000
"""Tasks that are kept; of those that have ended the oldest go first."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def add(tx: Tx, task: Doc, born: str) -> None:
    """Raises HttpFault (413) when too many wait. Forgets what is too old, or too much."""
    alone(tx, "image_tasks")
    tx.run(sa.delete(tasks).where(tasks.c.expires_at != "", tasks.c.expires_at <= task["created_at"]))
    if tx.scalar(sa.select(sa.func.count()).where(tasks.c.expires_at == "")) >= WAITING_MAX:
        raise too_large(f"There may be {WAITING_MAX} tasks at most that have not ended.")
    over = tx.scalar(sa.select(sa.func.count()).select_from(tasks)) - TASKS_MAX + 1
    if over > 0:
        oldest = sa.select(tasks.c.id).where(tasks.c.expires_at != "").order_by(tasks.c.born).limit(over)
        tx.run(sa.delete(tasks).where(tasks.c.id.in_(oldest)))
    tx.run(sa.insert(tasks).values(id=task["id"], born=born, **_columns(task)))


def _columns(task: Doc) -> Doc:
    return {
        "image": task.get("image_id", ""),
        "expires_at": task.get("expires_at", ""),
        "doc": _encode(task).decode(),
    }


def put(tx: Tx, task: Doc) -> None:
    tx.run(sa.update(tasks).where(tasks.c.id == task["id"]).values(_columns(task)))


def show(tx: Tx, id: str, at: str) -> Doc | None:
    text = tx.scalar(sa.select(tasks.c.doc).where(tasks.c.id == id, _unexpired(at)))
    return None if text is None else _decode(text)


def all_tasks(tx: Tx, at: str, *, image: str | None = None) -> list[Doc]:
    """The tasks that are kept at that time, the newest first; of one image, if it is given."""
    asked = sa.select(tasks.c.doc).where(_unexpired(at)).order_by(tasks.c.born.desc(), tasks.c.id)
    if image is not None:
        asked = asked.where(tasks.c.image == image)
    return [_decode(text) for (text,) in tx.rows(asked)]


def waiting(tx: Tx) -> list[Doc]:
    """Those that have not ended."""
    return [_decode(text) for (text,) in tx.rows(sa.select(tasks.c.doc).where(tasks.c.expires_at == ""))]


def _unexpired(at: str) -> sa.ColumnElement[bool]:
    return sa.or_(tasks.c.expires_at == "", tasks.c.expires_at > at)
