"""JSON of the shape of a Struct: what a decoder takes, before it is spoiled."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec.inspect as shape

from moorage_testing.fuzz.random_values import FuzzDice

DEPTH_MAX = 6
KNOWN_PART = 0.8


_KNOWN: dict[Any, shape.Type] = {}


def of(kind: Any) -> shape.Type:
    """Read once."""
    if kind not in _KNOWN:
        _KNOWN[kind] = shape.type_info(kind)
    return _KNOWN[kind]


class Shapes:
    """`known`: values by the name of a field, so that some of what is made names things that are there."""

    def __init__(self, dice: FuzzDice, known: Mapping[str, Sequence[Any]]) -> None:
        self._dice = dice
        self._known = known

    def make(self, kind: shape.Type, name: str = "", depth: int = 0) -> Any:
        if self._known.get(name) and self._dice.chance(KNOWN_PART):
            return self._dice.choice(self._known[name])
        match kind:
            case shape.StructType():
                return self._struct(kind, depth)
            case shape.UnionType():
                return self.make(self._dice.choice(kind.types), name, depth)
            case shape.ListType() | shape.VarTupleType():
                return [self.make(kind.item_type, name, depth + 1) for _ in range(self._many(depth))]
            case shape.DictType():
                return {
                    str(self.make(kind.key_type)): self.make(kind.value_type, "", depth + 1)
                    for _ in range(self._many(depth))
                }
            case _:
                return self._plain(kind)

    def _many(self, depth: int) -> int:
        return 0 if depth > DEPTH_MAX else self._dice.one(0, 1, 1, 3)

    def _plain(self, kind: shape.Type) -> Any:
        dice = self._dice
        match kind:
            case shape.LiteralType():
                return dice.choice(kind.values)
            case shape.EnumType():
                return dice.choice([each.value for each in kind.cls])
            case shape.StrType():
                return self._text(kind)
            case shape.BoolType():
                return dice.chance(0.5)
            case shape.IntType():
                return dice.one(0, 1, 2, 7, 1_000)
            case shape.FloatType():
                return dice.one(0.0, 1.5, 60.0)
            case shape.NoneType():
                return None
            case shape.CustomType():
                return self._of_class(kind.cls)
            case _:
                return dice.odd()

    def _struct(self, kind: shape.StructType, depth: int) -> Any:
        found = {
            field.encode_name: self.make(field.type, field.encode_name, depth + 1)
            for field in kind.fields
            if field.required or kind.array_like or (depth <= DEPTH_MAX and self._dice.chance(0.5))
        }
        if kind.array_like:
            return list(found.values())
        return found if kind.tag_field is None else {kind.tag_field: kind.tag, **found}

    def _text(self, kind: shape.StrType) -> str:
        if kind.pattern is not None and "{8}" in kind.pattern:
            return self._dice.uuid()
        return self._dice.one(
            self._dice.ordinary_text(), self._dice.ordinary_text(), self._dice.uuid(), self._dice.text()
        )

    def _of_class(self, kind: Any) -> Any:
        if issubclass(kind, int):
            return self._dice.one(0, 1, 2, "3", 100)
        if issubclass(kind, str):
            return self._dice.ordinary_text()
        return self._dice.one(True, False, "true", "0")
