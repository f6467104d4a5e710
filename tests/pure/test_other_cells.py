"""Which cells can have a moved server, why others cannot, and in which order hosts are tried."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from moorage.main.config import Cell, Compute, Config, checked
from moorage.model.errors import Invalid, NotAcceptable, NotFound, Unavailable
from moorage.model.ids import CellId, NetworkId
from moorage.model.network import NetworkFacts, Port
from moorage.model.server import BlockDevice, Server
from moorage.model.world import Ask
from moorage.operations.context import SagaSettings
from moorage.operations.steps.guest_respawn import Cards
from moorage.operations.steps.other_cells import (
    ANEW,
    LIVE,
    RESIZE,
    CellReach,
    of_all_cells,
    reach_of,
    refuse_other_cell,
    refuse_unless_crossing,
)
from moorage.operations.steps.segment_change import Tries
from moorage_testing.fake_server_service import a_server

HOME, NEAR, FAR = CellId("home"), CellId("near"), CellId("far")


class Volumes:
    """Volume → its zone; what is not there is gone."""

    def __init__(self, zones: dict[str, str | None], *, old: bool = False) -> None:
        self._zones, self._old = zones, old

    async def zone(self, volume: str) -> str | None:
        if self._old:
            raise NotAcceptable("Version 3.44 is not supported by the API.")
        if volume not in self._zones:
            raise NotFound("gone")
        return self._zones[volume]


def context(*, bindings: bool = True, volumes: Any = None, **settings: Any) -> Any:
    async def has_bindings() -> bool:
        return bindings

    world = SimpleNamespace(slots_by_name={"h1": 0, "h2": 1}, cell=[0, 1], cell_names=[HOME, NEAR])
    return SimpleNamespace(
        cells=SimpleNamespace(ids=(HOME, NEAR, FAR)),
        network=SimpleNamespace(has_bindings=has_bindings),
        placement=SimpleNamespace(world=lambda: world),
        volumes=volumes,
        settings=SagaSettings(**settings),
    )


def server(*volumes: str, **flavor: Any) -> Server:
    disks = tuple(BlockDevice("volume", "volume", volume=each) for each in volumes)
    size = msgspec.structs.replace(a_server().flavor, **flavor)
    return msgspec.structs.replace(a_server(), cell=HOME, block_devices=disks, flavor=size)


def cards(*cells: CellId) -> Cards:
    network = NetworkFacts(id=NetworkId("n1"), name="net", cells=cells)
    return Cards((Port(id="p1", network="n1", mac="m"),), {"n1": network})


async def obstacles(found: Any, of: Server, at: Cards, takes: Any) -> dict[str, str]:
    return {cell: str(why) for cell, why in (await reach_of(found, of, at, takes)).unfit.items()}


async def test_each_obstacle_to_leaving_a_cell_is_named() -> None:
    zones = {NEAR: ("z1", "z2")}
    disks = Volumes({"v1": "z1", "v2": "z3", "v4": None})
    room = context(volumes=disks, volume_zones=zones, cell_links=frozenset({frozenset({HOME, FAR})}))
    assert await obstacles(room, server("v1"), cards(), ANEW) == {}
    assert await obstacles(room, server("v1", "v2"), cards(), RESIZE) == {
        NEAR: "a volume of the server cannot be reached from the host's cell (v2 is in zone z3)"
    }
    assert await obstacles(room, server("v3", "v4"), cards(), ANEW) == {}, "a volume that is gone, or that has no zone"
    assert await obstacles(room, server(), cards(), LIVE) == {NEAR: "the host's cell is not linked with the server's"}
    both = "its ephemeral or swap disk cannot go to another cell"
    for local in ({"swap_mib": 1}, {"ephemeral_gib": 1}):
        assert await obstacles(room, server(**local), cards(), RESIZE) == {NEAR: both, FAR: both}
        assert await obstacles(room, server(**local), cards(), ANEW) == {}, "they are made anew wherever it goes"
    flat = "a network of the server has other addresses in the host's cell (net)"
    assert await obstacles(room, server(), cards(HOME, NEAR), ANEW) == {NEAR: flat, FAR: flat}


async def test_old_services_keep_a_server_in_its_cell() -> None:
    one = "the network service has one binding of a port only"
    assert await obstacles(context(bindings=False), server(), cards(), RESIZE) == {NEAR: one, FAR: one}
    assert await obstacles(context(bindings=False), server(), Cards(), RESIZE) == {}
    assert await obstacles(context(bindings=False), server(), cards(), ANEW) == {}, "the port has no other host then"
    old = "the volume service is too old for moves across cells (it does not know version 3.44 of its API)"
    room = context(volumes=Volumes({}, old=True))
    assert await obstacles(room, server("v1"), cards(), ANEW) == {NEAR: old, FAR: old}
    assert await obstacles(room, server(), cards(), ANEW) == {}


def test_after_a_failure_the_same_cell_is_tried_first_and_then_all() -> None:
    """And addresses of other segments are the last thing that is tried (S4.14, S4.23)."""
    near, far = Ask(resources={"VCPU": 1}, cells=(HOME,)), Ask(resources={"VCPU": 2}, cells=(HOME,))
    tries, reach = Tries((near, far), far, frozenset({0})), CellReach()
    first = of_all_cells(tries, HOME, reach, out=(FAR,))
    assert [(each.resources["VCPU"], each.cells) for each in first.asks] == [(1, None), (2, None)]
    assert {(each.prefer_cell, each.cells_out) for each in (*first.asks, first.widest)} == {(HOME, (FAR,))}
    again = of_all_cells(tries, HOME, reach, last=NEAR)
    assert [(each.resources["VCPU"], each.cells) for each in again.asks] == [
        (1, (NEAR,)), (1, None), (2, (NEAR,)), (2, None),
    ]  # fmt: skip
    assert (again.widest.cells, again.may_leave) == (None, frozenset({0}))


def test_a_host_of_another_cell_is_found_with_the_permission() -> None:
    room = context()
    refuse_other_cell(room, server(), "h1", allowed=False)
    refuse_other_cell(room, server(), "h2", allowed=True)
    elsewhere = " in the server's cell: it is in another one, and this move may not leave it."
    for host, allowed, where in (("h2", False, elsewhere), ("h9", True, ".")):
        with pytest.raises(Invalid, match=f"^Compute host {host} could not be found{where}$"):
            refuse_other_cell(room, server(), host, allowed=allowed)
    for named in (None, "h1", "h9"):
        refuse_unless_crossing(room, server(), named, crosses=False)
    with pytest.raises(Unavailable):
        refuse_unless_crossing(room, server(), "h2", crosses=False)
    refuse_unless_crossing(room, server(), "h2", crosses=True)


def test_links_are_between_cells_of_the_configuration() -> None:
    cells = (Cell("a"), Cell("b"))
    assert checked(Config(cells=cells, compute=Compute(cell_links=(("a", "b"),)))).compute.cell_links == (("a", "b"),)
    with pytest.raises(Invalid, match="names c, which is no cell"):
        checked(Config(cells=cells, compute=Compute(cell_links=(("a", "c"),))))
