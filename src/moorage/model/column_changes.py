"""What differs between two states of the same columns: how a decision's inputs are kept without keeping every number again."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Column = NDArray[Any]
PLACES = np.dtype("<u4")


class ColumnChange(msgspec.Struct, frozen=True, array_like=True):
    """One column: values at some places, or, where `at` is None, all of them."""

    dtype: str
    size: int
    at: bytes | None
    values: bytes


class ListChange(msgspec.Struct, frozen=True, array_like=True):
    """One list of plain values: some of them, or, where `at` is None, all."""

    size: int
    at: tuple[int, ...] | None
    values: list[Any]


class ColumnChanges(msgspec.Struct, frozen=True, omit_defaults=True):
    """From one state to the next; `full`: from nothing."""

    full: bool = False
    columns: dict[str, ColumnChange] = {}
    lists: dict[str, ListChange] = {}
    facts: dict[str, Any] = {}
    """Small things, whole."""
    dropped: tuple[str, ...] = ()
    """Columns and lists that are no more."""

    def __bool__(self) -> bool:
        return bool(self.full or self.columns or self.lists or self.facts or self.dropped)


def column_change(old: Column | None, new: Column) -> ColumnChange | None:
    """None: they are equal."""
    if old is None or old.shape != new.shape or old.dtype != new.dtype:
        return ColumnChange(new.dtype.str, len(new), None, new.tobytes())
    at = (old != new).nonzero()[0]
    if not len(at):
        return None
    if 2 * len(at) > len(new):
        return ColumnChange(new.dtype.str, len(new), None, new.tobytes())
    return ColumnChange(new.dtype.str, len(new), at.astype(PLACES).tobytes(), new[at].tobytes())


def changed_column(old: Column | None, change: ColumnChange) -> Column:
    """The column after the change; the same object where only some values are others. Raises ValueError for what cannot be."""
    values = np.frombuffer(change.values, dtype=np.dtype(change.dtype))
    if change.at is None:
        if len(values) != change.size:
            raise ValueError("a column is not as long as it says")
        return values.copy()
    at = np.frombuffer(change.at, dtype=PLACES)
    if old is None or len(old) != change.size or old.dtype != values.dtype or len(at) != len(values):
        raise ValueError("a change does not fit its column")
    if len(at) and int(at.max()) >= len(old):
        raise ValueError("a change is beyond the end of its column")
    old[at] = values
    return old


def list_change(old: list[Any] | None, new: list[Any]) -> ListChange | None:
    """None: they are equal."""
    if old == new:
        return None
    if old is None or len(old) > len(new):
        return ListChange(len(new), None, list(new))
    at = [place for place, value in enumerate(new) if place >= len(old) or old[place] != value]
    if 2 * len(at) > len(new):
        return ListChange(len(new), None, list(new))
    return ListChange(len(new), tuple(at), [new[place] for place in at])


def changed_list(old: Sequence[Any] | None, change: ListChange) -> list[Any]:
    """The list after the change. Raises ValueError for what cannot be."""
    if change.at is None:
        return list(change.values)
    values = list(old or ())
    if len(values) > change.size or len(change.at) != len(change.values):
        raise ValueError("a change does not fit its list")
    values += [None] * (change.size - len(values))
    for place, value in zip(change.at, change.values, strict=True):
        values[place] = value
    return values
