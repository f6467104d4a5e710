"""Which table of routes, and so which zone of conntrack and mark, each router of a host has."""

import pytest

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
