"""`resize`, `migrate`, `os-migrateLive`, `confirmResize` and `revertResize`: permissions, states, and the fields of each version."""

from typing import Any

import msgspec
import pytest
from tests.api.test_server_actions import ID, act

from moorage.api.compute.server_lookup import CROSS_CELL
from moorage.api.policy import Policy
from moorage.model.migration import MigrationStatus
from moorage.model.server import Moved, Server, TaskState, VmState
from moorage.operations.resize.accept_resize import ResizeWish
from moorage.store.cell import migrations as cell_migrations
from moorage_testing.compute_app import ADMIN, MEMBER, READER, STRANGER
from moorage_testing.fake_server_service import a_migration, a_server

RESIZE = {"resize": {"flavorRef": "2"}}


def moved(number: int = 1, **more: Any) -> Server:
    server = a_server(number, vm_state=VmState.RESIZED, **more)
    return msgspec.structs.replace(server, moved=Moved(1, "m", VmState.ACTIVE, server.flavor, "host9"))


async def test_a_resize_names_a_flavor(servers: Any) -> None:
    await servers.keep(a_server(), a_server(2, vm_state=VmState.PAUSED), a_server(3, locked=True))
    asked = {"resize": {"flavorRef": "http://cloud/flavors/2", "OS-DCF:diskConfig": "AUTO"}}
    assert (await act(servers, asked)).status_code == 202
    assert (await act(servers, {"resize": {"flavorRef": 3}}, at="2.1", by=ADMIN)).status_code == 202
    wishes = [wish for _, wish in servers.book.moved]
    assert wishes == [ResizeWish("2", None, "AUTO"), ResizeWish("3", sees_all_flavors=True)]
    assert (await act(servers, RESIZE, number=2)).status_code == 409
    assert (await act(servers, RESIZE, number=3)).status_code == 409
    assert (await act(servers, RESIZE, by=READER)).status_code == 403
    assert (await act(servers, RESIZE, by=STRANGER)).status_code == 404
    for wrong in ({}, {"flavorRef": ""}, {"flavorRef": "2", "odd": 1}, {"flavorRef": "2", "OS-DCF:diskConfig": "X"}):
        assert (await act(servers, {"resize": wrong})).status_code == 400, wrong


async def test_a_migration_may_name_a_host_since_2_56(servers: Any) -> None:
    await servers.keep(a_server(), a_server(2, task_state=TaskState.RESIZE_PREP))
    manager = msgspec.structs.replace(MEMBER, roles=("manager", "member", "reader"))
    to = {"migrate": {"host": "host2"}}
    for by, body, at, status in (
        (ADMIN, {"migrate": None}, "2.1", 202),
        (ADMIN, to, "2.55", 202),
        (ADMIN, to, "2.56", 202),
        (manager, {"migrate": None}, "2.56", 202),
        (manager, to, "2.56", 403),
        (MEMBER, {"migrate": None}, "2.56", 403),
        (ADMIN, {"migrate": {"host": "a host"}}, "2.56", 400),
        (ADMIN, {"migrate": {"odd": 1}}, "2.56", 400),
    ):
        assert (await act(servers, body, at=at, by=by)).status_code == status, (body, at)
    assert [wish.host for _, wish in servers.book.moved] == [None, None, "host2", None]
    assert (await act(servers, {"migrate": None}, by=ADMIN, number=2)).status_code == 409


async def test_permission_to_leave_the_cell_is_checked_for_each_kind_of_move(servers: Any) -> None:
    """Nobody by default. The rule only widens where a move may go; it refuses none (S4.2, S4.7)."""
    await servers.keep(a_server(), a_server(2, vm_state=VmState.SHELVED_OFFLOADED))
    bodies = (RESIZE, {"migrate": None}, LIVE, {"evacuate": {"host": "host2"}})
    for rule, wanted in ((None, False), ("role:admin and user_id:%(user_id)s", False), ("rule:context_is_admin", True)):
        if rule is not None:
            servers.context.policy = Policy({CROSS_CELL: rule})
        for body in bodies:
            assert (await act(servers, body, by=ADMIN)).status_code in {200, 202}
        assert (await act(servers, {"unshelve": {"host": "host2"}}, by=ADMIN, number=2)).status_code == 202
        book = servers.book
        seen = [
            *(wish for _, wish in book.moved),
            *(wish for _, wish in book.live),
            *(wish for _, wish in book.evacuated),
        ]
        seen += [wish for *_, wish in book.shelved]
        assert [wish.cross_cell for wish in seen] == [wanted] * 5, rule
        for each in (book.moved, book.live, book.evacuated, book.shelved):
            each.clear()


LIVE = {"os-migrateLive": {"host": None, "block_migration": "auto"}}
MANAGER = msgspec.structs.replace(MEMBER, roles=("manager", "member", "reader"))


def live(**fields: Any) -> dict[str, Any]:
    return {"os-migrateLive": {"host": "host2", "block_migration": False, **fields}}


async def test_fields_of_live_migrate_by_version(servers: Any) -> None:
    await servers.keep(a_server())
    over = {"disk_over_commit": "no"}
    for by, body, at, status in (
        (ADMIN, live(**over), "2.1", 202),
        (ADMIN, live(), "2.24", 400),
        (ADMIN, live(**over, block_migration="auto"), "2.24", 400),
        (ADMIN, live(**over), "2.25", 400),
        (ADMIN, live(block_migration="auto"), "2.25", 202),
        (ADMIN, live(force=True), "2.29", 400),
        (ADMIN, live(force="true"), "2.30", 202),
        (ADMIN, live(force=True, host=None), "2.67", 400),
        (ADMIN, live(force=False), "2.68", 400),
        (ADMIN, live(block_migration="perhaps"), "2.68", 400),
        (ADMIN, live(host="a host"), "2.68", 400),
        (ADMIN, {"os-migrateLive": {"block_migration": True}}, "2.68", 400),
        (MANAGER, LIVE, "2.68", 202),
        (MANAGER, live(), "2.68", 403),
        (MEMBER, LIVE, "2.68", 403),
        (STRANGER, LIVE, "2.68", 404),
    ):
        assert (await act(servers, body, at=at, by=by)).status_code == status, (body, at)
    wishes = [(wish.host, wish.block) for _, wish in servers.book.live]
    assert wishes == [("host2", False), ("host2", None), ("host2", False), (None, None)]


async def test_its_checks_are_waited_for_before_2_34(servers: Any) -> None:
    await servers.keep(a_server())
    for at in ("2.33", "2.34"):
        assert (await act(servers, LIVE, at=at, by=ADMIN)).status_code == 202
    assert [wish.waits for _, wish in servers.book.live] == [True, False]


async def test_running_servers_are_live_migrated(servers: Any) -> None:
    states = (VmState.ACTIVE, VmState.PAUSED, VmState.STOPPED, VmState.SUSPENDED, VmState.RESIZED)
    await servers.keep(
        *(a_server(number, vm_state=state) for number, state in enumerate(states, 1)),
        a_server(6, task_state=TaskState.MIGRATING),
        a_server(7, locked=True),
    )
    answers = [(await act(servers, LIVE, by=MANAGER, number=number)).status_code for number in range(1, 8)]
    assert answers == [202, 202, 409, 409, 409, 409, 409]
    assert (await servers.shown(number=6))["status"] == "MIGRATING"


async def migrating(servers: Any, status: MigrationStatus, **fields: Any) -> str:
    await servers.keep(a_server(task_state=TaskState.MIGRATING, **fields))
    await servers.cell.write(lambda tx: cell_migrations.put(tx, a_migration(1, status=status)))
    return f"/servers/{ID}/migrations"


@pytest.mark.parametrize("status", [MigrationStatus.QUEUED, MigrationStatus.PREPARING])
async def test_a_queued_migration_can_be_aborted_from_2_65(servers: Any, status: MigrationStatus) -> None:
    moves = await migrating(servers, status)
    early = await servers.ask("DELETE", f"{moves}/1", None, at="2.64", by=MANAGER)
    assert early.status_code == 400
    assert early.json()["badRequest"]["message"] == (
        f"Migration 1 state of instance {ID} is {status.value}. Cannot abort live migration while the migration is in this state."
    )
    assert (await servers.ask("DELETE", f"{moves}/1", None, at="2.65", by=MANAGER)).status_code == 202
    assert servers.book.aborted == [a_migration(1).uuid]
    body = {"force_complete": None}
    assert (await servers.ask("POST", f"{moves}/1/action", body, at="latest", by=MANAGER)).status_code == 400


async def test_a_running_migration_can_be_forced_and_aborted(servers: Any) -> None:
    moves, body = await migrating(servers, MigrationStatus.RUNNING), {"force_complete": None}
    for by, status in ((MEMBER, 403), (STRANGER, 404), (MANAGER, 202)):
        assert (await servers.ask("POST", f"{moves}/1/action", body, at="2.22", by=by)).status_code == status
        assert (await servers.ask("DELETE", f"{moves}/1", None, at="2.24", by=by)).status_code == status
    assert servers.book.forced == servers.book.aborted == [a_migration(1).uuid]
    assert (await servers.ask("POST", f"{moves}/9/action", body, at="latest", by=ADMIN)).status_code == 400
    assert (await servers.ask("DELETE", f"{moves}/9", None, at="latest", by=ADMIN)).status_code == 404
    assert (
        await servers.ask("POST", f"{moves}/1/action", {"force_complete": {}}, at="latest", by=ADMIN)
    ).status_code == 400


async def test_a_paused_server_is_not_forced_and_an_idle_one_not_aborted(servers: Any) -> None:
    moves = await migrating(servers, MigrationStatus.RUNNING, vm_state=VmState.PAUSED)
    assert (
        await servers.ask("POST", f"{moves}/1/action", {"force_complete": None}, at="latest", by=ADMIN)
    ).status_code == 409
    await servers.keep(a_server(2))
    still = f"/servers/{a_server(2).id}/migrations/1"
    assert (await servers.ask("DELETE", still, None, at="latest", by=ADMIN)).status_code == 409


@pytest.mark.parametrize(("action", "status"), [("confirmResize", 204), ("revertResize", 202)])
async def test_a_resized_server_is_confirmed_or_reverted(servers: Any, action: str, status: int) -> None:
    await servers.keep(moved(), a_server(2), moved(3, locked=True), a_server(4, vm_state=VmState.RESIZED))
    for number, code in ((1, status), (2, 409), (3, 409), (4, 400)):
        answer = await act(servers, {action: None}, number=number)
        assert answer.status_code == code, number
    assert answer.json()["badRequest"]["message"] == "Instance has not been resized."
    assert (await act(servers, {action: None}, by=READER)).status_code == 403
    assert (servers.book.confirmed if action == "confirmResize" else servers.book.reverted) == [ID]


@pytest.mark.parametrize(
    ("state", "task", "status"),
    [
        (VmState.ACTIVE, TaskState.RESIZE_PREP, "RESIZE"),
        (VmState.STOPPED, TaskState.RESIZE_MIGRATING, "RESIZE"),
        (VmState.RESIZED, None, "VERIFY_RESIZE"),
        (VmState.RESIZED, TaskState.RESIZE_REVERTING, "REVERT_RESIZE"),
    ],
)
async def test_a_move_shows(servers: Any, state: VmState, task: TaskState | None, status: str) -> None:
    await servers.keep(a_server(vm_state=state, task_state=task))
    assert (await servers.shown())["status"] == status


async def test_a_server_that_was_moved_is_reset_to_verify_resize(servers: Any) -> None:
    """What its old host keeps is ended by a confirm or a revert, and by nothing else."""
    await servers.keep(moved(1))
    for state, status in (("error", "ERROR"), ("active", "VERIFY_RESIZE")):
        assert (await act(servers, {"os-resetState": {"state": state}}, by=ADMIN)).status_code == 202
        assert (await servers.shown())["status"] == status
        for refused in ({"rebuild": {"imageRef": a_server().image}}, {"reboot": {"type": "HARD"}}):
            assert (await act(servers, refused)).status_code == 409, (status, refused)
    assert (await act(servers, {"revertResize": None})).status_code == 202


async def test_only_administrators_see_hosts_of_a_move_and_cancel_it(servers: Any) -> None:
    await servers.keep(a_server(), a_server(2, locked=True))
    path, body = f"/ext/servers/{ID}/moves", {"cancel": None}
    for by, status in ((READER, 403), (MANAGER, 403), (STRANGER, 404), (ADMIN, 200)):
        assert (await servers.ask("GET", path, None, by=by)).status_code == status
        cancelled = await servers.ask("POST", f"{path}/some-move/action", body, by=by)
        assert cancelled.status_code == (202 if status == 200 else status)
    assert servers.book.cancelled == ["some-move"]
    assert (await servers.ask("GET", "/ext/servers/nobody/moves", None, by=ADMIN)).status_code == 404
    assert (await servers.ask("GET", f"{path}?limit=x", None, by=ADMIN)).status_code == 400
    assert (await servers.ask("POST", f"{path}/some-move/action", {"odd": None}, by=ADMIN)).status_code == 400
