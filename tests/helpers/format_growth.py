"""Whether a stored format has only new fields: names, types and meanings never change (RULES §19)."""

from collections.abc import Collection
from typing import Any

from msgspec import inspect

Described = dict[str, Any]
"""The root (`is`), and by name each struct (`fields`: name → type; `may lack`: names with a default) and enum (`values`) inside it."""

PLAIN = {
    inspect.AnyType: "anything",
    inspect.BoolType: "bool",
    inspect.BytesType: "bytes",
    inspect.FloatType: "float",
    inspect.IntType: "int",
    inspect.NoneType: "null",
    inspect.RawType: "json",
    inspect.StrType: "str",
}


RENAMED = {
    "LegacyStart": "Built",
    "FencingToken": "Turn",
    "Unwinding": "Turn",
    "DecisionRecord": "Ledger",
    "Rejection": "Miss",
    "StepResult": "Result",
    "LocatedServer": "Found",
    "DetachBegun": "Begun",
    "CardClaim": "Given",
    "GroupShare": "Given",
    "CellReach": "Reach",
    "LiveMovePath": "Way",
    "AttachInterfaceInput": "AttachInterface",
    "DetachInterfaceInput": "DetachInterface",
    "AttachVolumeInput": "AttachVolume",
    "DetachVolumeInput": "DetachVolume",
    "ExtendVolumeInput": "ExtendVolume",
    "SwapVolumeInput": "SwapVolume",
    "SnapshotInput": "Snapshot",
    "ActionEvent": "Event",
    "CellDrainRequest": "CellDrainAsked",
    "DrainProgress": "Progress",
    "DrainRequest": "DrainAsked",
    "MoveMethod": "Way",
    "OtherSubnets": "SubnetsBeside",
    "TransferProgress": "Progress",
}
"""Structs whose class has another name now than in the golden files. The name of a class is not written anywhere else."""


def written_name(kind: type) -> str:
    """The name of a struct in the golden files."""
    return RENAMED.get(kind.__name__, kind.__name__)


def described(kind: Any, apart: Collection[type] = ()) -> Described:
    """The type, and every struct and enum inside it, as names and words; of those `apart` the name alone."""
    describing = _Describing([each for each in apart if each is not kind])
    root = describing.word(inspect.type_info(kind))
    return {"is": root, **dict(sorted(describing.found.items()))}


class _Describing:
    def __init__(self, apart: Collection[type]) -> None:
        self.found: Described = {}
        self._apart = {written_name(each) for each in apart}
        self._seen = {written_name(each): each for each in apart}

    def word(self, kind: inspect.Type) -> str:
        match kind:
            case inspect.StructType():
                return self._struct(kind)
            case inspect.EnumType():
                name = written_name(kind.cls)
                self.found[name] = {"values": sorted(str(each.value) for each in kind.cls)}
                return name
            case inspect.LiteralType():
                return " | ".join(sorted(f"{each!r}" for each in kind.values))
            case inspect.UnionType():
                return " | ".join(sorted(self.word(each) for each in kind.types))
            case inspect.DictType():
                return f"{{{self.word(kind.key_type)}: {self.word(kind.value_type)}}}"
            case inspect.TupleType():
                return f"({', '.join(self.word(each) for each in kind.item_types)})"
            case inspect.ListType() | inspect.SetType() | inspect.FrozenSetType() | inspect.VarTupleType():
                return f"[{self.word(kind.item_type)}]"
            case _:
                return PLAIN[type(kind)]

    def _struct(self, kind: inspect.StructType) -> str:
        name = written_name(kind.cls)
        while self._seen.setdefault(name, kind.cls) is not kind.cls:  # another struct of one name
            name += "'"
        if name in self.found or name in self._apart:
            return name
        self.found[name] = entry = dict[str, Any]()
        entry["fields"] = {each.encode_name: self.word(each.type) for each in kind.fields}
        entry["may lack"] = sorted(each.encode_name for each in kind.fields if not each.required)
        if kind.tag is not None:
            entry["tag"] = kind.tag
        if kind.array_like:
            entry["places"] = [each.encode_name for each in kind.fields]
        return name


def broken(then: Described, now: Described) -> list[str]:
    """What an old reader or an old writer would stumble over."""
    wrong = []
    for name, old in then.items():
        new = now.get(name)
        if new is None:
            wrong.append(f"{name} is gone")
        elif isinstance(old, str):
            if not _offers(old, new):
                wrong.append(f"it was {old}, and is {new}")
        elif "values" in old:
            wrong += [f"{name} has lost {each}" for each in sorted(set(old["values"]) - set(new["values"]))]
        else:
            wrong += list(_broken_struct(name, old, new))
    return wrong


def _broken_struct(name: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    wrong = []
    for field, kind in old["fields"].items():
        if field not in new["fields"]:
            wrong.append(f"{name}.{field} is gone")
        elif not _offers(kind, new["fields"][field]):
            wrong.append(f"{name}.{field} was {kind}, and is {new['fields'][field]}")
    needed = set(new["fields"]) - set(new["may lack"])
    wrong += [
        f"{name}.{field} has no default" for field in sorted(needed - (set(old["fields"]) - set(old["may lack"])))
    ]
    if old.get("tag") != new.get("tag"):
        wrong.append(f"{name} was tagged {old.get('tag')}, and is {new.get('tag')}")
    if new.get("places", [])[: len(old.get("places", []))] != old.get("places", []):
        wrong.append(f"{name}: places have changed")
    return wrong


def _offers(old: str, new: str) -> bool:
    """The same, or one of more."""
    return set(old.split(" | ")) <= set(new.split(" | ")) if "[" not in old + new else old == new
