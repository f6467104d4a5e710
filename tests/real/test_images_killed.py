"""Operations on images whose conductor dies after each step, with a real Glance: the next one completes or undoes them.

All images that Glance shows are compared, as in the proofs (`tests/sagas`): which are whole, and which nobody fills any more.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, MutableMapping
from dataclasses import replace
from typing import Any, cast

import httpx
import pytest
from tests.helpers.real_cinder_region import Named
from typing_extensions import override

from moorage.clients.http import ServiceClient
from moorage.clients.image import ImageClient
from moorage.clients.service_tokens import ServiceTokens
from moorage.model.ids import OperationId, new_uuid
from moorage.model.server import Server
from moorage.operations.delete.delete import Delete
from moorage.operations.registry import SAGAS
from moorage_testing.proof_parts import ProofPart
from moorage_testing.real_services.fixtures import RealService
from moorage_testing.real_services.stack import Stack
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_shelved import offloading, shelved, shelved_server, shelving, unshelving
from moorage_testing.region_states import IMAGE, imaged, snapshotting
from moorage_testing.saga_proof import prove

pytestmark = pytest.mark.real

BACKUP = {"image_type": "backup", "backup_type": "daily", "instance_uuid": SERVER}
OCTETS = {"Content-Type": "application/octet-stream"}


class GlanceImages(MutableMapping[str, bool]):
    """Images by the names that the operations know them by, and whether each is whole: what hosts and worlds do to a Glance."""

    def __init__(self, stack: Stack, ids: dict[str, str]) -> None:
        self._ids = ids
        self._owner = stack.logins["moorage"].project_id
        headers = {"X-Auth-Token": stack.token("moorage")}
        self._http = httpx.Client(base_url=stack.image_url, headers=headers, timeout=60)

    def close(self) -> None:
        self._http.close()

    def _shown(self) -> dict[str, str]:
        """Name → status, of those that were made here."""
        found = self._ok("GET", f"/v2/images?limit=1000&owner={self._owner}").json()["images"]
        names = {id: name for name, id in self._ids.items()}
        return {names[each["id"]]: each["status"] for each in found if each["id"] in names}

    def _ok(self, method: str, path: str, **more: Any) -> httpx.Response:
        reply = self._http.request(method, path, **more)
        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text}"
        return reply

    @override
    def __getitem__(self, name: str) -> bool:
        return self._shown()[name] == "active"

    @override
    def __setitem__(self, name: str, whole: bool) -> None:
        now = self._shown().get(name)
        if now is None:
            self._ids[name] = new_uuid()  # an id that was used once is refused
            formats = {"disk_format": "raw", "container_format": "bare"}
            self._ok("POST", "/v2/images", json={"id": self._ids[name], "name": name, **formats, **BACKUP})
        if whole and now != "active":
            self._ok("PUT", f"/v2/images/{self._ids[name]}/file", content=b"data", headers=OCTETS)

    @override
    def __delitem__(self, name: str) -> None:
        self._ok("DELETE", f"/v2/images/{self._ids[name]}")

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._shown())

    @override
    def __len__(self) -> int:
        return len(self._shown())


class GlanceRegion(SmallRegion):
    """The small region of the proofs, with a real Glance in the place of the one in dicts; each world begins without an image."""

    glance: GlanceImages
    named: Named

    @override
    async def fresh(
        self, server: Server | None, operation: OperationId, seq: int = 1, *, guarantees: bool = False
    ) -> "GlanceRegion":
        await super().fresh(server, operation, seq, guarantees=guarantees)
        self.glance.clear()
        self.images.whole = cast("Any", self.glance)
        self.context = replace(self.context, images=ImageClient(cast("Any", self.named)))
        return self

    @override
    async def held(self) -> dict[str, Any]:
        """Backups of one second have no order: they are counted."""
        held = await super().held()
        return {
            **held,
            "images": sorted(each.partition("-")[0] for each in held["images"]) if _backups(held) else held["images"],
        }


def _backups(held: dict[str, Any]) -> bool:
    return any(each.startswith("backup") for each in held["images"])


@pytest.fixture
async def small(real_image: RealService) -> AsyncIterator[GlanceRegion]:
    stack = real_image.stack
    small = await GlanceRegion.open()
    assert isinstance(small, GlanceRegion)
    login = stack.logins["moorage"]
    identity = ServiceClient("identity", stack.identity_url)
    tokens = ServiceTokens(identity, user=login.user, password=login.password, project=login.project)
    neighbour = ServiceClient("image", stack.image_url, tokens=tokens)
    small.named = Named(neighbour)
    small.glance = GlanceImages(stack, small.named.ids)
    yield small
    small.glance.clear()
    small.glance.close()
    for each in (neighbour, identity, small):
        await each.close()


SCENARIOS: dict[str, tuple[str, Any, Callable[[Any], Awaitable[Any]], tuple[str, ...]]] = {
    "snapshot": ("snapshot/1", snapshotting(), imaged, ("take_snapshot", "upload_image", "record_snapshot")),
    "backup": ("snapshot/1", snapshotting("backup"), imaged, ("upload_image", "rotate_backups")),
    "shelve": (
        "shelve/1",
        shelving(offload=True),
        imaged,
        ("take_snapshot", "upload_image", "record_shelved", "clear_host"),
    ),
    "shelve offload": (
        "shelve_offload/1",
        offloading(),
        lambda small: shelved(small, offload=False),
        ("check_image", "destroy_guest"),
    ),
    "unshelve": (
        "unshelve/1",
        unshelving(),
        lambda small: shelved(small, offload=True),
        ("check_image", "start_guest", "announce", "delete_image"),
    ),
    "delete of a shelved server": (
        "delete/4",
        Delete(shelved_server(), seq=4, request_id="req-delete"),
        lambda small: shelved(small, offload=True),
        ("mark_deleted", "delete_shelved_image"),
    ),
}
"""What is asked → saga, its order, the world, and the steps after which the conductor dies."""


@pytest.mark.parametrize("what", sorted(SCENARIOS))
async def test_sagas_killed_after_each_step_are_completed_or_cancelled(what: str, small: GlanceRegion) -> None:
    saga, asked, world, steps = SCENARIOS[what]
    after_each = ProofPart("dying", scenarios="executed", points=f"leaving do of ({'|'.join(steps)}), .*")
    proof = await prove(SAGAS[saga], asked, lambda: world(small), after_each)
    assert proof.cases["killed"] == proof.cases["killed, then cancelled"] == len(steps)


@pytest.mark.parametrize("what", ["snapshot", "shelve"])
async def test_killed_while_it_is_taken_back(what: str, small: GlanceRegion) -> None:
    saga, asked, world, _ = SCENARIOS[what]
    on_the_way_back = ProofPart(
        "dying", scenarios="upload_image failing", points="leaving undo of .*(image|snapshot).*"
    )
    proof = await prove(SAGAS[saga], asked, lambda: world(small), on_the_way_back)
    assert proof.cases["killed"]
    assert IMAGE not in small.glance
