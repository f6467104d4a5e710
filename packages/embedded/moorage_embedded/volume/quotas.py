"""What a project may have, and has: counted from its volumes, snapshots and groups for every new one."""

from typing import NamedTuple

from moorage_embedded.volume.faults import over_limit
from moorage_embedded.volume.request import VolumeCall
from moorage_embedded.volume.store import Doc, VolumeStore

CLASS = "class:default"
OF_TYPE = ("volumes", "snapshots", "gigabytes")


def limits(call: VolumeCall, store: VolumeStore, project: str, types: dict[str, str] | None = None) -> dict[str, int]:
    """Every resource's limit for a project; `types`: names of volume types that have resources of their own."""
    found = dict(call.context.settings.quotas)
    names = (
        type_resources(store) if types is None else [f"{each}_{name}" for name in types.values() for each in OF_TYPE]
    )
    found |= dict.fromkeys(names, -1)
    found |= {name: cap for name, cap in store.caps(CLASS).items() if name in found}
    if project:
        found |= {name: cap for name, cap in store.caps(project).items() if name in found}
    return found


def type_resources(store: VolumeStore) -> list[str]:
    return [f"{each}_{doc['name']}" for doc in store.many("type") for each in OF_TYPE]


def used(store: VolumeStore, project: str, names: dict[str, str]) -> dict[str, int]:
    """Every resource's use; `names` are types by id."""
    found = {"volumes": 0, "snapshots": 0, "gigabytes": 0, "backups": 0, "backup_gigabytes": 0, "groups": 0}
    found["per_volume_gigabytes"] = 0
    for (noun, type), (many, gib) in store.usage(project).items():
        of = f"_{names[type]}" if type in names else None
        for name, amount in ((f"{noun}s", many), ("gigabytes", gib)):
            found[name] += amount
            if of is not None:
                found[name + of] = found.get(name + of, 0) + amount
    found["groups"] = store.count("group", project=project)
    return found


def charge_group(call: VolumeCall, store: VolumeStore, project: str) -> None:
    """Raises Fault (413) when the project may not have one more group; the count is locked until the commit."""
    store.alone(project)
    cap = limits(call, store, project, {})["groups"]
    if 0 <= cap < store.count("group", project=project) + 1:
        raise over_limit(f"GroupLimitExceeded: Maximum number of groups allowed ({cap}) exceeded")


def charge(
    call: VolumeCall,
    store: VolumeStore,
    project: str,
    noun: str,
    type: str,
    gib: int,
) -> None:
    """Raises Fault (413) when the project may not have one more volume or snapshot of this size; the count is locked
    until the commit.
    """
    _charge(call, store, project, _Growth(noun, type, gib, gib, one_more=True))


def charge_growth(call: VolumeCall, store: VolumeStore, volume: Doc, size_gib: int) -> None:
    """Raises Fault (413) when a volume of the project may not grow to this size; the count is locked until the commit."""
    more = size_gib - volume["size"]
    _charge(call, store, volume["project_id"], _Growth("volume", volume["volume_type_id"], more, size_gib))


class _Growth(NamedTuple):
    noun: str
    type: str
    more_gib: int
    whole_gib: int
    one_more: bool = False


def _charge(call: VolumeCall, store: VolumeStore, project: str, growth: _Growth) -> None:
    noun, type, gib, whole, one_more = growth
    store.alone(project)
    name = (store.get("type", type) or {}).get("name")
    types = {} if name is None else {type: name}
    allowed = limits(call, store, project, types)
    if noun == "volume" and 0 <= allowed["per_volume_gigabytes"] < whole:
        raise over_limit(
            f"Requested volume size {whole}G is larger than maximum allowed limit {allowed['per_volume_gigabytes']}G."
        )
    now = used(store, project, types)
    for suffix in ("", *(f"_{each}" for each in types.values())):
        gigabytes, count = f"gigabytes{suffix}", f"{noun}s{suffix}"
        consumed = now.get(gigabytes, 0)
        if gib and 0 <= allowed[gigabytes] < consumed + gib:
            raise over_limit(
                f"Requested volume or snapshot exceeds allowed {gigabytes} quota. Requested {gib}G, quota is"
                f" {allowed[gigabytes]}G and {consumed}G has been consumed."
            )
        if one_more and 0 <= allowed[count] < now.get(count, 0) + 1:
            raise over_limit(_too_many(noun, count, allowed[count]))


def _too_many(noun: str, resource: str, cap: int) -> str:
    if noun == "snapshot":
        return f"Maximum number of snapshots allowed ({cap}) exceeded"
    return f"Maximum number of volumes allowed ({cap}) exceeded for quota '{resource}'."
