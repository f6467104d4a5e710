"""With which projects an image is shared. The owner adds and removes them; each accepts or rejects for itself."""

from typing import Any

from starlette.responses import Response

from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.image.faults import bad, conflict, forbidden, not_found, too_large
from moorage_embedded.image.request import ImageCall, now, second, visible_image
from moorage_embedded.image.schemas import WORD_MAX_CHARS
from moorage_embedded.image.store import Doc, FoundImage, ImageTables

STATUSES = ("pending", "accepted", "rejected")


def _shared(store: ImageTables, call: ImageCall, *, hold: bool = False) -> FoundImage:
    id = call.path("id")
    found = visible_image(store, call.who, id, hold=hold)
    if found.visibility != "shared":
        raise forbidden("Only shared images have members.")
    return found


def _is_owner(call: ImageCall, found: FoundImage) -> bool:
    return call.who.everywhere or call.who.owns(found.owner)


def _no_member(call: ImageCall, member: str) -> Exception:
    return not_found(f"{member} not found in the member list of the image {call.path('id')}.")


async def create(call: ImageCall) -> Response:
    id, member = call.path("id"), _member_of(await call.body())

    def work(store: ImageTables) -> Doc:
        found = _shared(store, call, hold=True)
        if not call.who.changes(found.owner or None):
            raise forbidden(f"Not allowed to create members for image {id}.")
        most = call.context.settings.members_max
        if len(store.members(id)) >= most:
            raise too_large(f"Image member limit exceeded for image {id}: Maximum: {most}")
        made = store.add_member(id, member, second(now()))
        if made is None:
            raise conflict(f"Member {member} is duplicated for image {id}")
        return made

    return json_response(await call.context.write(work))


def _member_of(said: Any) -> str:
    member = said.get("member") if isinstance(said, dict) else None
    if not isinstance(member, str) or not member:
        raise bad("Member to be added not specified")
    if len(member) > WORD_MAX_CHARS or "\0" in member:
        raise bad("Member's name is too long, or holds the character NUL")
    return member


async def index(call: ImageCall) -> Response:
    """The owner sees all, a member itself."""

    def work(store: ImageTables) -> list[Doc]:
        found = _shared(store, call)
        everybody = store.members(call.path("id"))
        if _is_owner(call, found):
            return everybody
        return [each for each in everybody if each["member_id"] == call.who.project]

    return json_response({"members": await call.context.read(work), "schema": "/v2/schemas/members"})


async def show(call: ImageCall) -> Response:
    member = call.path("member")

    def work(store: ImageTables) -> Doc:
        found = visible_image(store, call.who, call.path("id"))
        if found.visibility != "shared":
            raise not_found("Only shared images have members.")
        if _is_owner(call, found) or member == call.who.project:
            for each in store.members(call.path("id")):
                if each["member_id"] == member:
                    return each
        raise _no_member(call, member)

    return json_response(await call.context.read(work))


async def update(call: ImageCall) -> Response:
    """Accepting is the member's own business, not the owner's."""
    member, said = call.path("member"), await call.body()
    status = said.get("status") if isinstance(said, dict) else None
    if status is None:
        raise bad("Status not specified")
    if status not in STATUSES:
        raise bad(f'Incorrect request: Status must be one of "pending", "accepted" or "rejected", not {status!r}.')

    def work(store: ImageTables) -> Doc:
        found = _shared(store, call, hold=True)
        if not (_is_owner(call, found) or member == call.who.project):
            raise _no_member(call, member)
        if not (call.who.admin or (call.who.member and member == call.who.project)):
            raise forbidden(f"Not allowed to update members for image {call.path('id')}.")
        changed = store.set_member(call.path("id"), member, status, second(now()))
        if changed is None:
            raise _no_member(call, member)
        return changed

    return json_response(await call.context.write(work))


async def delete(call: ImageCall) -> Response:
    def work(store: ImageTables) -> None:
        found = _shared(store, call, hold=True)
        if not call.who.changes(found.owner or None):
            raise forbidden(f"Not allowed to delete members for image {call.path('id')}.")
        if not store.remove_member(call.path("id"), call.path("member")):
            raise _no_member(call, call.path("member"))

    await call.context.write(work)
    return empty_response()
