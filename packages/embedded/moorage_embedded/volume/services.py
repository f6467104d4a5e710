"""The service's own processes: listed, switched off, frozen and thawed by administrators; and what lies on their hosts.

Source: Cinder's API v3, `os-services` and `os-hosts`.
"""

from collections import Counter

from starlette.responses import Response

from moorage_embedded.http_kit.answers import HttpFault, json_response
from moorage_embedded.volume.faults import invalid_input
from moorage_embedded.volume.request import VolumeCall, stamp
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import NAME, TEXT, Check, obj

BINARIES = ("cinder-scheduler", "cinder-volume")
_WHICH = {"host": NAME, "binary": TEXT, "service": TEXT}
ENABLE = Check(obj(_WHICH, "host"))
DISABLE_REASON = Check(obj(_WHICH | {"disabled_reason": {"type": "string", "minLength": 1, "maxLength": 255}}, "host"))
FREEZE = Check(obj({"host": NAME, "cluster": {"type": ["string", "null"], "maxLength": 255}}))


def _host_of(call: VolumeCall, binary: str) -> str:
    whole = call.context.settings.host.partition("#")[0]
    return whole if binary == "cinder-volume" else whole.partition("@")[0]


def _service(call: VolumeCall, binary: str, doc: Doc | None) -> Doc:
    held = doc or {}
    shown: Doc = {
        "binary": binary,
        "host": _host_of(call, binary),
        "zone": call.context.settings.availability_zone,
        "status": "disabled" if held.get("disabled") else "enabled",
        "state": "up",
        "updated_at": stamp(),
        "disabled_reason": held.get("reason"),
    }
    if binary == "cinder-volume":
        shown |= {"replication_status": "disabled", "active_backend_id": None, "frozen": bool(held.get("frozen"))}
    if call.version >= 7:
        shown["cluster"] = None
    if call.version >= 49 and binary == "cinder-volume":
        shown["backend_state"] = "up"
    return shown


async def services(call: VolumeCall) -> Response:
    """The service is this process, so it is up when it answers."""
    call.require(call.who.admin, "volume_extension:services:index")
    asked = dict(call.pairs)
    held = await call.context.read(lambda store: {doc["id"]: doc for doc in store.many("service")})
    found = [_service(call, binary, held.get(binary)) for binary in BINARIES]
    if "host" in asked:  # of a whole host, or of one of its back ends
        found = [each for each in found if asked["host"] in {each["host"], each["host"].partition("@")[0]}]
    if "binary" in asked:
        found = [each for each in found if each["binary"] == asked["binary"]]
    return json_response({"services": found})


async def enable(call: VolumeCall) -> Response:
    return await _enabled(call, ENABLE(await call.body()), disabled=False)


async def disable(call: VolumeCall) -> Response:
    return await _enabled(call, ENABLE(await call.body()), disabled=True)


async def disable_with_reason(call: VolumeCall) -> Response:
    return await _enabled(call, DISABLE_REASON(await call.body()), disabled=True)


async def _enabled(call: VolumeCall, said: Doc, *, disabled: bool) -> Response:
    """Kept and shown; with one back end there is nowhere else for new volumes to go."""
    call.require(call.who.admin, "volume_extension:services:update")
    binary = said.get("binary") or said.get("service") or ""
    if binary not in BINARIES or _host_of(call, binary) != said["host"]:
        raise HttpFault(404, f"Service {binary} on host {said['host']} could not be found.")
    reason = said.get("disabled_reason") if disabled else None

    def work(store: VolumeStore) -> None:
        _put(store, binary, {"disabled": disabled, "reason": reason})

    await call.context.write(work)
    answer: Doc = {
        "host": said["host"],
        "service": binary,
        "binary": binary,
        "disabled": disabled,
        "status": "disabled" if disabled else "enabled",
    }
    if reason is not None:
        answer["disabled_reason"] = reason
    return json_response(answer)


def _put(store: VolumeStore, binary: str, changes: Doc) -> None:
    before = store.get("service", binary, hold=True)
    doc = (before or {"id": binary, "disabled": False, "reason": None, "created_at": stamp()}) | changes
    if before is None:
        store.add("service", doc)
    else:
        store.put("service", doc)


def frozen(store: VolumeStore) -> bool:
    """The back end is to be left as it is: nothing on it is removed."""
    doc = store.get("service", "cinder-volume")
    return doc is not None and bool(doc.get("frozen"))


def check_not_frozen(store: VolumeStore) -> None:
    """Raises 400, as Cinder does where volumes are deleted and snapshots made or deleted."""
    if frozen(store):
        raise invalid_input("Modification operations are not allowed on frozen storage backends.")


async def freeze(call: VolumeCall) -> Response:
    return await _frozen(call, to=True)


async def thaw(call: VolumeCall) -> Response:
    return await _frozen(call, to=False)


async def _frozen(call: VolumeCall, *, to: bool) -> Response:
    call.require(call.who.admin, "volume:freeze_host" if to else "volume:thaw_host")
    said = FREEZE(await call.body())
    if said.get("cluster"):
        raise invalid_input(f"No service found with cluster={said['cluster']}")
    if said.get("host") != _host_of(call, "cinder-volume"):
        raise invalid_input(f"No service found with host={said.get('host')}")

    def work(store: VolumeStore) -> None:
        if frozen(store) is to:
            raise invalid_input(f"frozen in {said['host']} must be {not to} to failover.")
        _put(store, "cinder-volume", {"frozen": to, "disabled": to, "reason": "frozen" if to else ""})

    await call.context.write(work)
    return Response(status_code=200)


async def hosts(call: VolumeCall) -> Response:
    call.require(call.who.admin, "volume_extension:hosts")
    zone = call.context.settings.availability_zone
    rows = [
        {
            "service-status": "available", "service": binary, "zone": zone, "service-state": "enabled",
            "host_name": _host_of(call, binary), "last-update": stamp(),
        }
        for binary in BINARIES
    ]  # fmt: skip
    return json_response({"hosts": rows})


async def host(call: VolumeCall) -> Response:
    """How many volumes and snapshots the host has, in all and by project. Raises HttpFault (404) for another host."""
    call.require(call.who.admin, "volume_extension:hosts")
    name = call.path("host")
    if name != _host_of(call, "cinder-volume"):
        raise HttpFault(404, f"Host {name} could not be found.")
    volumes, snapshots = await call.context.read(lambda store: (store.many("volume"), store.many("snapshot")))
    counts: dict[str, Counter[str]] = {"(total)": Counter()}
    for kind, docs in (("volume", volumes), ("snapshot", snapshots)):
        for doc in docs:
            for project in ("(total)", doc["project_id"]):
                counts.setdefault(project, Counter()).update({f"{kind}_count": 1, f"total_{kind}_gb": doc["size"]})
    amounts = ("volume_count", "total_volume_gb", "snapshot_count", "total_snapshot_gb")
    rows = [
        {"resource": {"host": name, "project": project} | {amount: str(count[amount]) for amount in amounts}}
        for project, count in counts.items()
    ]
    return json_response({"host": rows})
