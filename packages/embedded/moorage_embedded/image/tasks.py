"""Tasks, Glance's older way to import: what is asked for goes on after the answer, and the task says how it ended.

`import` makes an image of what an allowed address has.  The imports of staged data (`staging`) leave tasks too.  Tasks that have
ended are forgotten after two days.
"""

from datetime import timedelta
from typing import Any
from urllib.parse import SplitResult, urlsplit
from uuid import UUID, uuid4

from starlette.responses import Response

from moorage_embedded.http_kit.answers import HttpFault, json_response
from moorage_embedded.http_kit.paging import page_of, page_url
from moorage_embedded.http_kit.values import DRAFT_4, ValueSchema, bounded_number
from moorage_embedded.image import task_store
from moorage_embedded.image.faults import bad, not_allowed, not_found
from moorage_embedded.image.request import ImageCall, fine, now, request_id, second, visible_image
from moorage_embedded.image.schemas import TASK
from moorage_embedded.image.store import Doc, ImageTables

KEPT = timedelta(hours=48)
"""How long a task is kept after its end; Glance's default."""
STATUSES = ("pending", "processing", "success", "failure")
API_IMPORT = "api_image_import"
NEEDED = {
    "import": ("import_from", "import_from_format", "image_properties"),
    API_IMPORT: ("image_id",),
    "location_import": ("image_id", "loc_url", "validation_data"),
}
"""What the input of a type of task names."""
FILTERS = ("status", "type", "owner", "image_id")
SORT_KEYS = ("id", "type", "status", "owner", "created_at", "updated_at", "expires_at")
HIDDEN_IN_LISTS = ("input", "result", "message", "image_id", "user_id", "request_id")
"""Of the fields of a task."""
_SCHEMA = ValueSchema(DRAFT_4 | TASK)
_PORTS = {"http": 80, "https": 443}


def new_task(call: ImageCall, kind: str, given: Any, image: str = "") -> Doc:
    """A task about to be kept, of the project and user that ask for it."""
    at, id = second(now()), str(uuid4())
    return {
        "id": id,
        "type": kind,
        "status": "pending",
        "input": given,
        "result": None,
        "owner": call.who.project or "",
        "message": "",
        "user_id": call.who.user,
        "request_id": request_id(call.request),
        "created_at": at,
        "updated_at": at,
        **({"image_id": image} if image else {}),
        "self": f"/v2/tasks/{id}",
        "schema": "/v2/schemas/task",
    }


def ended(task: Doc, status: str, *, result: Doc | None = None, message: str = "") -> Doc:
    """The task with its end."""
    moment = now()
    return task | {
        "status": status,
        "result": result,
        "message": message,
        "updated_at": second(moment),
        "expires_at": second(moment + KEPT),
    }


def _enforce(call: ImageCall) -> None:
    if not call.who.admin:
        raise not_allowed("tasks_api_access")


async def create(call: ImageCall) -> Response:
    """Begin a task. Raises HttpFault: 403, 400 also for an address that is not allowed, 413 when too many wait."""
    _enforce(call)
    said = await call.body()
    if not isinstance(said, dict):
        raise bad("The body must be a JSON object.")
    for name in ("type", "input"):
        if name not in said:
            raise bad(f"Task '{name}' is required")
    if (reason := _SCHEMA.reason(said)) is not None:
        raise bad(f"Provided object does not match schema 'task': {reason}")
    given = said["input"] or {}
    if said["type"] == "import":
        check_address(given.get("import_from"), call.context.imports.hosts)
    image = "" if said["type"] == "import" else given.get("image_id")  # an import makes its image itself
    task = new_task(call, said["type"], given, image if isinstance(image, str) else "")
    await call.context.write(lambda store: task_store.add(store.tx, task, fine(now())))
    call.context.imports.begin(call.context, call.who, task)
    return json_response(task, 201, {"Location": call.context.public_url + task["self"]})


def check_address(said: Any, hosts: tuple[str, ...]) -> None:
    """Raises HttpFault (400), unless it is of HTTP and its host one of `hosts` (`name`, or `name:port` for another port)."""
    if not isinstance(said, str) or not said:
        raise bad(f"Invalid location: {said}")
    if said.startswith(("file:///", "filesystem:///")):
        raise bad("File based imports are not allowed. Please use a non-local source of image data.")
    if not said.startswith(("http://", "https://")):
        raise bad(
            "The given uri is not valid. Please specify a valid uri from the following list of supported uri ['http']"
        )
    if _place(said) not in {host.lower() for host in hosts}:
        raise bad(f"URI for legacy import task does not pass filtering: {said}")


def _place(url: str) -> str:
    """Host, and port if it is not the scheme's; empty for what is no address, or has credentials in it."""
    try:
        parts: SplitResult = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except ValueError:
        return ""
    if parts.hostname is None or "@" in parts.netloc:
        return ""
    return parts.hostname if port == _PORTS[parts.scheme] else f"{parts.hostname}:{port}"


async def index(call: ImageCall) -> Response:
    """The newest first, unless `sort_key` and `sort_dir` say else. Raises HttpFault: 403, 400."""
    _enforce(call)
    said = dict(call.pairs)
    _check_filters(said)
    settings = call.context.settings
    limit = bounded_number("limit", said["limit"], settings.page_max) if "limit" in said else settings.page_default
    found = await call.context.read(lambda store: task_store.all_tasks(store.tx, second(now())))
    found = [each for each in found if all(each.get(name) == said[name] for name in FILTERS if said.get(name))]
    descends = said.get("sort_dir", "desc") == "desc"
    if not descends:
        found.reverse()  # they come with the newest first
    key = said.get("sort_key", "created_at")
    page = page_of(found, [] if key == "created_at" else [(key, descends)], said.get("marker") or None, limit)
    if page is None:
        raise bad(f"No task found with ID {said['marker']}")
    answer: Doc = {
        "tasks": [{name: each[name] for name in each if name not in HIDDEN_IN_LISTS} for each in page],
        "first": page_url("/v2/tasks", call.pairs, None),
        "schema": "/v2/schemas/tasks",
    }
    if page and len(page) == limit:
        answer["next"] = page_url("/v2/tasks", call.pairs, page[-1]["id"])
    return json_response(answer)


def _check_filters(said: dict[str, str]) -> None:
    if said.get("sort_dir", "desc") not in {"asc", "desc"}:
        raise bad(f"Invalid sort direction: {said['sort_dir']}")
    if said.get("sort_key", "created_at") not in SORT_KEYS:
        raise bad(f"Sort key supplied was not valid: {said['sort_key']}")
    if said.get("status") and said["status"] not in STATUSES:
        raise bad(f"Invalid status value: {said['status']}")
    if said.get("type") and said["type"] not in NEEDED:
        raise bad(f"Invalid type value: {said['type']}")
    if said.get("marker"):
        try:
            UUID(said["marker"])
        except ValueError:
            raise bad("Invalid marker format") from None


async def show(call: ImageCall) -> Response:
    _enforce(call)
    id = call.path("id")
    found = await call.context.read(lambda store: task_store.show(store.tx, id, second(now())))
    if found is None:
        raise not_found(f"No task found with ID {id}")
    return json_response(found)


async def delete(call: ImageCall) -> Response:
    """Raises HttpFault: 403, 405 as tasks are forgotten by time alone."""
    _enforce(call)
    raise HttpFault(
        405,
        "This operation is currently not permitted on Glance Tasks. They are auto deleted after reaching the time based"
        " on their expires_at property.",
        {"Allow": "GET"},
    )


async def of_image(call: ImageCall) -> Response:
    """The tasks of an image that the caller sees, the oldest first."""

    def work(store: ImageTables) -> list[Doc]:
        visible_image(store, call.who, call.path("id"))
        found = task_store.all_tasks(store.tx, second(now()), image=call.path("id"))
        return [_record(each) for each in reversed(found)]

    return json_response({"tasks": await call.context.read(work)})


def _record(task: Doc) -> Doc:
    """As Glance shows the tasks of an image: the record itself."""
    shown = {name: each for name, each in task.items() if name not in {"self", "schema"}}
    return shown | {
        "expires_at": task.get("expires_at"),
        "request_id": task.get("request_id"),
        "deleted": False,
        "deleted_at": None,
    }
