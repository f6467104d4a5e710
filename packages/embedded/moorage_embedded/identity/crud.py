"""Create, list, show, update and delete, the same for every plain resource; callers pass the differences.

`Ways` holds the differences: permissions, what a row needs before it is written, and what is checked before a delete.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from starlette.responses import Response

from moorage.model.errors import Invalid, NotFound
from moorage.sql import Tx
from moorage_embedded.http_kit.answers import empty_response, json_response
from moorage_embedded.identity import store
from moorage_embedded.identity.request import Handler, IdentityCall, Routes, listed
from moorage_embedded.identity.schemas import ResourceSchema, fresh, patched, shown
from moorage_embedded.identity.store import Record

Prepare: TypeAlias = Callable[[IdentityCall, Record], Awaitable[None]]
Check: TypeAlias = Callable[[Tx, Record], None]
Allow: TypeAlias = Callable[[IdentityCall, Record], bool]


async def _as_is(_call: IdentityCall, _values: Record) -> None:
    """Nothing to prepare."""


async def _no_more(_call: IdentityCall, _row: Record) -> Record:
    return {}


def _no_check(_tx: Tx, _row: Record) -> None:
    """Nothing to look at."""


def _home(row: Record) -> str | None:
    """The domain whose readers and managers a row is for."""
    return row["id"] if row.get("is_domain") else row.get("domain_id")


@dataclass(frozen=True)
class Ways:
    prepare: Prepare = _as_is
    """Turns what was said into what is stored, before the transaction."""
    check: Check = _no_check
    """In the transaction, before a row is written: does what it names exist?"""
    before_delete: Check = _no_check
    of_domain: bool = False
    """Whoever asks for a domain sees what is in it alone, administrators too."""
    keep: Allow = lambda call, row: True
    """What the query of a list asks of a row, beside the filters by columns."""
    more: Callable[[IdentityCall, Record], Awaitable[Record]] = _no_more
    """What is shown of one that is asked for alone."""
    may_see: Allow = lambda call, row: call.may_read(_home(row))
    may_list: Callable[[IdentityCall], bool] = lambda call: call.may_read(call.domain_scope)
    may_write: Allow = lambda call, row: call.may_write(_home(row))


BULK_MAX = 100
FLAGS = {"enabled", "is_domain"}
TRUE = {"true", "1", "yes", "on", "t", ""}


def filters(noun: ResourceSchema, call: IdentityCall) -> tuple[Record, dict[str, tuple[str, str]]]:
    equal: Record = dict(noun.equal)
    like: dict[str, tuple[str, str]] = {}
    for key, value in call.request.query_params.multi_items():
        name, _, operator = key.partition("__")
        if name not in noun.filters:
            continue
        if operator:
            like[name] = (operator, value)
        elif name in FLAGS:
            equal[name] = value.lower() in TRUE
        else:
            equal[name] = None if value == "None" else value
    return equal, like


class _Plain:
    """The handlers of one noun."""

    def __init__(self, noun: ResourceSchema, ways: Ways) -> None:
        self.noun, self.ways = noun, ways

    def _answer(self, call: IdentityCall, row: Record, status: int = 200) -> Response:
        return json_response({self.noun.one: shown(self.noun, row, call.context.url)}, status)

    async def _needed(self, call: IdentityCall, verb: str) -> Record:
        """A caller without any permission does not learn whether it exists."""
        found = await call.context.read(lambda tx: store.get(tx, self.noun.table, call.path("id")))
        if found is None or any(found[name] != value for name, value in self.noun.equal.items()):
            none: Record = {"id": call.path("id"), "domain_id": None, "project_id": None, "is_domain": False}
            allowed = self.ways.may_see if verb == "get" else self.ways.may_write
            call.require(allowed(call, none), f"{verb}_{self.noun.one}")
            raise NotFound(f"Could not find {self.noun.one}: {call.path('id')}.")
        return found

    async def create(self, call: IdentityCall) -> Response:
        return await self._create(call, await call.body(self.noun.one))

    async def create_many(self, call: IdentityCall) -> Response:
        """All of them or none."""
        said = (await call.document()).get(self.noun.many)
        if (
            not isinstance(said, list)
            or not 0 < len(said) <= BULK_MAX
            or not all(isinstance(one, dict) for one in said)
        ):
            raise Invalid(f"'{self.noun.many}' is a required property and must be a list of 1 to {BULK_MAX} objects.")
        rows = [fresh(self.noun, one) for one in said]
        for values in rows:
            await self.ways.prepare(call, values)
            call.require(self.ways.may_write(call, values), f"create_{self.noun.many}")

        def work(tx: Tx) -> None:
            for values in rows:
                self.ways.check(tx, values)
                store.insert(tx, self.noun.table, values, self.noun.one)

        await call.context.write(work)
        return json_response({self.noun.many: [shown(self.noun, values, call.context.url) for values in rows]}, 201)

    async def create_named(self, call: IdentityCall) -> Response:
        """The row whose id is in the path."""
        said, name = await call.body(self.noun.one), call.path("id")
        if said.setdefault("id", name) != name:
            raise Invalid(f"The id of the {self.noun.one} is not the one in the path.")
        return await self._create(call, said)

    async def _create(self, call: IdentityCall, said: Record) -> Response:
        if self.ways.of_domain and not said.get("domain_id"):  # only administrators leave it to us which
            call.require(call.may_write(), f"create_{self.noun.one}")
        values = fresh(self.noun, said)
        await self.ways.prepare(call, values)
        call.require(self.ways.may_write(call, values), f"create_{self.noun.one}")

        def work(tx: Tx) -> None:
            self.ways.check(tx, values)
            store.insert(tx, self.noun.table, values, self.noun.one)

        await call.context.write(work)
        return self._answer(call, values, 201)

    async def index(self, call: IdentityCall) -> Response:
        call.require(self.ways.may_list(call), f"list_{self.noun.many}")
        equal, like = filters(self.noun, call)
        usually = self.noun.usually
        equal = {**usually, **{name: value for name, value in equal.items() if value or name not in usually}}
        if call.domain_scope and self.ways.of_domain:
            equal["domain_id"] = call.domain_scope
        found = await call.context.read(lambda tx: store.find(tx, self.noun.table, equal, like=like))
        kept = (row for row in found if self.ways.may_see(call, row) and self.ways.keep(call, row))
        return listed(call, self.noun, kept)

    async def show(self, call: IdentityCall) -> Response:
        row = await self._needed(call, "get")
        call.require(self.ways.may_see(call, row), f"get_{self.noun.one}")
        more = await self.ways.more(call, row)
        return json_response({self.noun.one: shown(self.noun, row, call.context.url) | more})

    async def update(self, call: IdentityCall) -> Response:
        row = await self._needed(call, "update")
        call.require(self.ways.may_write(call, row), f"update_{self.noun.one}")
        values = patched(self.noun, await call.body(self.noun.one), row)
        await self.ways.prepare(call, values)

        def work(tx: Tx) -> Record:
            self.ways.check(tx, {**row, **values})
            return store.change(tx, self.noun.table, row["id"], values, self.noun.one)

        return self._answer(call, await call.context.write(work))

    async def delete(self, call: IdentityCall) -> Response:
        row = await self._needed(call, "delete")
        call.require(self.ways.may_write(call, row), f"delete_{self.noun.one}")

        def work(tx: Tx) -> None:
            self.ways.before_delete(tx, store.need(tx, self.noun.table, row["id"], self.noun.one))
            store.remove(tx, self.noun.table, row["id"], self.noun.one)

        await call.context.write(work)
        return empty_response()


def plain(noun: ResourceSchema, ways: Ways) -> Routes:
    """The five routes of a resource; one whose ids the client chooses also has PUT."""
    told = _Plain(noun, ways)
    one: dict[str, Handler] = {"GET": told.show, "PATCH": told.update, "DELETE": told.delete}
    if noun.own_id:
        one["PUT"] = told.create_named
    return {
        noun.many: {"POST": told.create_many if noun.in_bulk else told.create, "GET": told.index},
        f"{noun.many}/{{id}}": one,
    }
