"""`/servers/{id}/metadata` and `/servers/{id}/tags`."""

from typing import Annotated
from urllib.parse import quote

from msgspec import Meta

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.server_bodies import TAGS_MAX, Metadata, Tag
from moorage.api.compute.server_lookup import in_state, not_locked, notification_of, the_server
from moorage.api.routes import Route
from moorage.api.schema import Body, decode
from moorage.api.timestamps import now_us
from moorage.model.errors import Conflict, Invalid, NotFound
from moorage.model.quota import CountLimit, count_limit
from moorage.model.server import Server, TaskState, VmState
from moorage.operations.records import servers as writes
from moorage.store.region.quotas import both_limits

METADATA = "os_compute_api:server-metadata:"
TAGS = "os_compute_api:os-server-tags:"
SETTLED = (VmState.ACTIVE, VmState.PAUSED, VmState.SUSPENDED, VmState.STOPPED)
ANY_TASK = (None, *TaskState)
"""What is being done to a server does not forbid to describe it."""


class ServerMetadataBody(Body):
    metadata: Metadata


class ServerMetadataItemBody(Body):
    meta: Metadata


class TagsBody(Body):
    tags: Annotated[list[Tag], Meta(max_length=TAGS_MAX)]


class OneTag(Body):
    tag: Tag


async def _changed(call: AnyCall, server: Server, changed: writes.Changed) -> Server:
    now, listener = now_us(call.context.clock), notification_of(call, "update")
    return await writes.change(call.context.region, call.context.cells, server.id, changed, now, listener=listener)


async def metadata_most(call: AnyCall, project: str) -> CountLimit:
    """How many items of metadata a server of the project may have."""
    user, config = call.principal.user, await call.context.limits_of(project)
    limits = await call.context.region.read(lambda tx: both_limits(tx, project, user, config))
    return count_limit(config, "metadata_items", limits)


def _must_be_writable(call: AnyCall, server: Server, word: str) -> None:
    not_locked(call, server)
    in_state(server, word, SETTLED, ANY_TASK)


async def _writable(call: AnyCall, rule: str) -> Server:
    server = await the_server(call, METADATA + rule)
    _must_be_writable(call, server, "update metadata")
    return server


async def all_metadata(call: AnyCall) -> Response:
    server = await the_server(call, METADATA + "index")
    return Response(200, {"metadata": server.metadata})


async def add_metadata(call: Call[ServerMetadataBody]) -> Response:
    server = await _writable(call, "create")
    most = await metadata_most(call, server.project)
    after = await _changed(call, server, writes.with_metadata(call.body.metadata, whole=False, most=most))
    return Response(200, {"metadata": after.metadata})


async def replace_metadata(call: Call[ServerMetadataBody]) -> Response:
    server = await _writable(call, "update_all")
    most = await metadata_most(call, server.project)
    after = await _changed(call, server, writes.with_metadata(call.body.metadata, whole=True, most=most))
    return Response(200, {"metadata": after.metadata})


async def one_metadata(call: AnyCall) -> Response:
    """Show one item of a server's metadata. Raises NotFound when the server does not have it."""
    server = await the_server(call, METADATA + "show")
    key = call.path["key"]
    if key not in server.metadata:
        raise NotFound("Metadata item was not found")
    return Response(200, {"meta": {key: server.metadata[key]}})


async def set_metadata(call: Call[ServerMetadataItemBody]) -> Response:
    """Set one item of a server's metadata. Raises Invalid when the body has not exactly the key of the path."""
    key = call.path["key"]
    if len(call.body.meta) != 1:
        raise Invalid("Invalid input for field/attribute meta: exactly one item is wanted.")
    server = await the_server(call, METADATA + "update")
    if key not in call.body.meta:
        raise Invalid("Request body and URI mismatch")
    _must_be_writable(call, server, "update metadata")
    most = await metadata_most(call, server.project)
    after = await _changed(call, server, writes.with_metadata(call.body.meta, whole=False, most=most))
    return Response(200, {"meta": {key: after.metadata[key]}})


async def drop_metadata(call: AnyCall) -> Response:
    """Remove one item of a server's metadata. Raises NotFound when the server does not have it."""
    server, key = await the_server(call, METADATA + "delete"), call.path["key"]
    if key not in server.metadata:
        raise NotFound("Metadata item was not found")
    _must_be_writable(call, server, "delete metadata")
    await _changed(call, server, writes.without_metadata(key))
    return Response(204)


async def _tagged(call: AnyCall, rule: str, word: str) -> Server:
    server = await the_server(call, TAGS + rule)
    if server.vm_state not in SETTLED:
        raise Conflict(f"Cannot '{word}' instance {server.id} while it is in vm_state {server.vm_state.value}")
    return server


async def all_tags(call: AnyCall) -> Response:
    server = await the_server(call, TAGS + "index")
    return Response(200, {"tags": list(server.tags)})


async def replace_tags(call: Call[TagsBody]) -> Response:
    server = await _tagged(call, "update_all", "update tags")
    tags = tuple(dict.fromkeys(call.body.tags))
    after = await _changed(call, server, writes.with_fields(tags=tags))
    return Response(200, {"tags": list(after.tags)})


async def drop_tags(call: AnyCall) -> Response:
    server = await _tagged(call, "delete_all", "delete tags")
    await _changed(call, server, writes.with_fields(tags=()))
    return Response(204)


async def has_tag(call: AnyCall) -> Response:
    """Answer 204 if the server has the tag. Raises NotFound when it does not."""
    server = await the_server(call, TAGS + "show")
    if call.path["tag"] not in server.tags:
        raise NotFound(f"Server {server.id} has no tag '{call.path['tag']}'")
    return Response(204)


async def add_tag(call: AnyCall) -> Response:
    """Add a tag to a server. Raises Invalid when the server has as many as it may."""
    server = await _tagged(call, "update", "update tag")
    tag = decode({"tag": call.path["tag"]}, OneTag).tag
    if len(server.tags) >= TAGS_MAX:  # of one that it has already, too
        raise Invalid(f"The number of tags exceeded the per-server limit {TAGS_MAX}")
    if tag in server.tags:
        return Response(204)
    await _changed(call, server, writes.with_tag(tag, TAGS_MAX))
    return Response(201, None, {"Location": call.self_link(f"servers/{server.id}/tags/{quote(tag)}")})


async def drop_tag(call: AnyCall) -> Response:
    server = await _tagged(call, "delete", "delete tag")
    await _changed(call, server, writes.without_tag(call.path["tag"]))
    return Response(204)


ROUTES = (
    Route("GET", "/servers/{id}/metadata", all_metadata),
    Route("POST", "/servers/{id}/metadata", add_metadata, takes=ServerMetadataBody),
    Route("PUT", "/servers/{id}/metadata", replace_metadata, takes=ServerMetadataBody),
    Route("GET", "/servers/{id}/metadata/{key}", one_metadata),
    Route("PUT", "/servers/{id}/metadata/{key}", set_metadata, takes=ServerMetadataItemBody),
    Route("DELETE", "/servers/{id}/metadata/{key}", drop_metadata),
    Route("GET", "/servers/{id}/tags", all_tags),
    Route("PUT", "/servers/{id}/tags", replace_tags, takes=TagsBody),
    Route("DELETE", "/servers/{id}/tags", drop_tags),
    Route("GET", "/servers/{id}/tags/{tag}", has_tag),
    Route("PUT", "/servers/{id}/tags/{tag}", add_tag),
    Route("DELETE", "/servers/{id}/tags/{tag}", drop_tag),
)
