"""`/volumes/{id}/metadata` and `/snapshots/{id}/metadata`, with the entity tags of 3.15."""

import hashlib
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
from starlette.responses import Response

from moorage_embedded.http_kit.answers import HttpFault, empty_response, json_response
from moorage_embedded.volume.faults import bad
from moorage_embedded.volume.records import snapshot_of, volume_of
from moorage_embedded.volume.request import VolumeCall, touched
from moorage_embedded.volume.store import Doc, VolumeStore
from moorage_embedded.volume.validation import METADATA, Check, obj

ALL = Check(obj({"metadata": METADATA}, "metadata"))
ONE = Check(obj({"meta": METADATA | {"minProperties": 1}}, "meta"))
Change: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


def _resource_name(call: VolumeCall) -> str:
    return call.parts[0].removesuffix("s")


def _find(call: VolumeCall, store: VolumeStore, *, hold: bool = False) -> Doc:
    find = volume_of if _resource_name(call) == "volume" else snapshot_of
    return find(call, store, call.path("id"), hold=hold)


def _text(metadata: dict[str, Any]) -> bytes:
    return msgspec.json.encode({"metadata": metadata})


def _tag(metadata: dict[str, Any]) -> str:
    return hashlib.md5(_text(metadata), usedforsecurity=False).hexdigest()


async def _change(call: VolumeCall, change: Change, rule: str) -> dict[str, Any]:
    noun = _resource_name(call)
    wanted = call.request.headers.get("if-match") if call.version >= 15 and noun == "volume" else None

    def work(store: VolumeStore) -> dict[str, Any]:
        doc = _find(call, store, hold=True)
        call.require(call.who.writes(doc["project_id"]), f"volume:{rule}_{noun}_metadata")
        if wanted is not None and _tag(doc["metadata"]) not in wanted:
            raise HttpFault(412, "The metadata was changed meanwhile.")
        doc["metadata"] = change(doc["metadata"])
        if len(doc["metadata"]) > call.context.settings.metadata_max:
            raise HttpFault(413, f"There may be {call.context.settings.metadata_max} metadata items at most.")
        store.put(noun, touched(doc))
        kept: dict[str, Any] = doc["metadata"]
        return kept

    return await call.context.write(work)


async def index(call: VolumeCall) -> Response:
    doc = await call.context.read_inline(lambda store: _find(call, store))
    answer = Response(_text(doc["metadata"]), 200, None, "application/json")
    if call.version >= 15 and _resource_name(call) == "volume":
        answer.headers["ETag"] = _tag(doc["metadata"])
    return answer


async def add(call: VolumeCall) -> Response:
    said = ALL(await call.body())["metadata"]
    return json_response({"metadata": await _change(call, lambda held: held | said, "create")})


async def replace(call: VolumeCall) -> Response:
    said = ALL(await call.body())["metadata"]
    return json_response({"metadata": await _change(call, lambda _: said, "update")})


async def show_one(call: VolumeCall) -> Response:
    doc = await call.context.read_inline(lambda store: _find(call, store))
    key = call.path("key")
    if key not in doc["metadata"]:
        raise _no_key(call, key)
    return json_response({"meta": {key: doc["metadata"][key]}})


def _no_key(call: VolumeCall, key: str) -> HttpFault:
    return HttpFault(404, f"{_resource_name(call).title()} {call.path('id')} has no metadata with key {key}.")


async def set_one(call: VolumeCall) -> Response:
    said, key = ONE(await call.body())["meta"], call.path("key")
    if key not in said:
        raise bad("Request body and URI mismatch")
    if len(said) > 1:
        raise bad("Request body contains too many items")
    await _change(call, lambda held: held | said, "update")
    return json_response({"meta": said})


async def drop_one(call: VolumeCall) -> Response:
    key = call.path("key")

    def drop(held: dict[str, Any]) -> dict[str, Any]:
        if key not in held:
            raise _no_key(call, key)
        return {name: value for name, value in held.items() if name != key}

    await _change(call, drop, "delete")
    return empty_response(200)
