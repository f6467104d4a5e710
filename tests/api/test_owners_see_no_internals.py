"""Whatever fails, owners of a server see no host, cell, provider or other project in it.

Every kind of problem there is, with a canary in all its fields but the public sentence, goes the way that a failure of an
operation goes: into its journal, the server's fault and the action's event.  Then it is asked for in all the places where an
owner may look.  That the public sentences name nothing is looked at where they are written
(`tests/pure/test_public_messages.py`).
"""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import moorage.model
from moorage.api import http_errors
from moorage.model.action import Action
from moorage.model.errors import Problem
from moorage.model.ids import ConductorId, OperationId
from moorage.model.operation import Accepted
from moorage.model.principal import Principal
from moorage.model.server import Server, VmState
from moorage.operations.steps.failures import failed_event, fault_of
from moorage.saga import Cause
from moorage.saga.journal import Failed, Line, Stalled, Unwinding, Waiting
from moorage.store.cell import actions, migrations
from moorage.store.region import operations
from moorage.store.region.journal import Journal
from moorage_testing.compute_app import ADMIN, MEMBER, READER
from moorage_testing.fake_server_service import a_migration, a_server

CANARY = "canary"
SENTENCE = "it could not be done where the server was to be"
REQUEST = "req-00000000-0000-4000-8000-00000000000a"
MANAGER = Principal("e" * 32, project=MEMBER.project, roles=("manager", "member", "reader"))
OWNERS = (READER, MEMBER, MANAGER)
HOST, NODE, CELL_WORD = f"{CANARY}-host", f"{CANARY}-node", f"{CANARY}-cell"
PLACES = (
    "/servers/{id}",
    "/servers/detail",
    "/servers/{id}/os-instance-actions",
    "/servers/{id}/os-instance-actions/" + REQUEST,
    "/servers/{id}/migrations",
    "/ext/servers/{id}/explain",
    "/ext/operations",
    "/ext/operations/op-1",
)
TOLD_TO_OPERATORS = (
    "/ext/servers/{id}/explain",
    "/ext/operations/op-1",
    "/servers/{id}/os-instance-actions/" + REQUEST,
)


def kinds() -> list[type[Problem]]:
    """All there are in the model, whoever made them."""
    for each in pkgutil.iter_modules(moorage.model.__path__, "moorage.model."):
        importlib.import_module(each.name)

    def below(root: type[Problem]) -> Iterator[type[Problem]]:
        yield root
        for kind in root.__subclasses__():
            yield from below(kind)

    return sorted(
        {each for each in below(Problem) if each.__module__.startswith("moorage.model")}, key=lambda k: k.__name__
    )


def with_canaries(kind: type[Problem]) -> Problem:
    """One of the kind; what it has besides its public sentence and its code is full of names."""
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        if parameter.kind is not inspect.Parameter.KEYWORD_ONLY or name == "code":
            continue
        default = parameter.default
        given[name] = f"{CANARY}-{name}" if isinstance(default, str) else default
        if isinstance(default, bytes):
            given[name] = msgspec.json.encode({"host": HOST})
    problem = kind(SENTENCE, **given).naming(f"{SENTENCE}: {HOST} of {CELL_WORD}, project {CANARY}-project")
    problem.without = (CELL_WORD,)
    return problem


async def fail(servers: Any, problem: Problem) -> Server:
    """Record it as an operation that failed of it records it."""
    fault = fault_of(problem, 1_767_225_700_000_000)
    server = a_server(vm_state=VmState.ERROR, fault=fault, host=HOST, node=NODE)
    await servers.keep(server)
    cause = Cause.of(problem, "bind_ports", 1)
    event = msgspec.structs.replace(failed_event("compute_bind", 2, HOST, cause, problem), traceback=f"{CANARY} trace")
    action = Action(server.id, "create", REQUEST, MEMBER.user, MEMBER.project or "", 1, 2, 3, "Error", (event,))
    move = a_migration(source_host=HOST, source_node=NODE, dest_host=HOST, dest_node=NODE)
    await servers.cell.write(lambda tx: actions.write(tx, action))
    await servers.cell.write(lambda tx: migrations.put(tx, move))
    accepted = Accepted(
        OperationId("op-1"), "boot/1", server.id, server.project, server.user, ConductorId(f"{CANARY}-conductor"), b"{}",
        b"", 0, created_at=1_767_225_600_000_000, request_id=REQUEST,
    )  # fmt: skip
    await servers.context.region.write(lambda tx: operations.accept(tx, [accepted]))
    begun = await servers.context.region.read(lambda tx: operations.get(tx, OperationId("op-1")))
    lines: list[Line] = [
        Failed(cause),
        Unwinding("failed", cause, None, 1),
        Stalled("bind_ports", "undo", cause),
        Waiting("bind_ports", 1, problem.public, problem.named),
    ]
    await Journal(servers.context.region, begun).append(lines, lambda tx: None, status="stuck")
    return server


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
async def test_owners_see_no_internal_details(servers: Any, kind: type[Problem]) -> None:
    problem = with_canaries(kind)
    server = await fail(servers, problem)
    for owner in OWNERS:
        for place in PLACES:
            answer = await servers.get(place.format(id=server.id), at="latest", by=owner)
            assert answer.status_code in {200, 403}, (place, answer.text)
            assert CANARY not in answer.text, (owner.roles, place, answer.text)
    result = (await servers.get(PLACES[0].format(id=server.id), at="latest", by=MEMBER)).json()["server"]
    assert result["fault"]["message"] == SENTENCE, "what they may know, they are told"
    for place in TOLD_TO_OPERATORS:
        answer = await servers.get(place.format(id=server.id), at="latest", by=ADMIN)
        assert HOST in answer.text, (place, answer.text)
    assert CANARY not in http_errors.answer(problem)[1].decode()
    assert any(CANARY in str(value) for value in vars(problem).values()), "there was something to learn"


@pytest.mark.parametrize("kind", kinds(), ids=lambda kind: kind.__name__)
def test_every_error_class_is_read_from_a_journal(kind: type[Problem]) -> None:
    again = Cause.of(with_canaries(kind), "bind_ports", 1).problem()
    assert (type(again), again.public, again.code) == (kind, SENTENCE, kind.code)


def test_many_error_classes_are_tested() -> None:
    assert len(kinds()) > 20
