"""Which table of routes, and so which zone of conntrack and mark, each router of a host has."""

from pathlib import Path

import msgspec
import pytest

from moorage.drivers.libvirt import routing
from moorage.drivers.libvirt.route_chains import MASK, mark_of
from moorage.drivers.libvirt.route_tables import number_of, numbered
from moorage.drivers.libvirt.routes import FIRST_TABLE, TABLES_MAX
from moorage.drivers.libvirt.routing import RoutingState
from moorage.drivers.libvirt.tunnels import ROUTED
from moorage.model.errors import HostFailed


def test_a_table_is_kept_and_not_taken_again_at_once() -> None:
    made, last = numbered({"a", "b"}, {}, RoutingState().last)
    assert made == {"a": FIRST_TABLE, "b": FIRST_TABLE + 1}
    again, last = numbered({"b", "c"}, made, last)
    assert again == {"b": FIRST_TABLE + 1, "c": FIRST_TABLE + 2}, "not that of the one that just went"
    third, _ = numbered({"b", "c", "d"}, again, FIRST_TABLE + TABLES_MAX - 1)
    assert third == again | {"d": FIRST_TABLE}, "they come round"
    assert last == FIRST_TABLE + 2


def test_there_are_so_many() -> None:
    made, last = numbered({str(each) for each in range(TABLES_MAX)}, {}, RoutingState().last)
    marks = {mark_of(number_of(table)) for table in made.values()}
    assert len(marks) == TABLES_MAX
    assert all(0 < mark < ROUTED and mark & ~MASK == 0 for mark in marks), "no mark of another kind"
    with pytest.raises(HostFailed):
        numbered({"more"}, made, last)


@pytest.mark.parametrize("another_routes", [False, True])
async def test_settings_are_put_back_as_far_as_they_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, another_routes: bool
) -> None:
    """A machine that has started again without IPv6 has no file of its settings; no guest had a network then."""

    async def answer(program: str, *words: str, **_: object) -> str:
        tables = "table inet moorage_route_another\n" if another_routes else ""
        return tables if words == ("list", "tables") else "[]" if program == "ip" else ""

    monkeypatch.setattr(routing, "run", answer)
    four, device, gone = (tmp_path / each for each in ("ipv4/fwmark_reflect", "eth1/rp_filter", "ipv6/fwmark_reflect"))
    for each in (four, device):
        each.parent.mkdir()
        each.write_text("1")
    (tmp_path / routing.FILE).write_bytes(
        msgspec.json.encode(RoutingState(settings={str(each): "0" for each in (four, device, gone)}))
    )
    await routing.Routing("0a1b2c3d", tmp_path, {}).keep({}, {})
    assert (four.read_text(), device.read_text()) == ("1" if another_routes else "0", "0")
    assert not gone.exists()
    assert not (tmp_path / routing.FILE).exists()
