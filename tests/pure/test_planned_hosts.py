"""The simulated hosts of `moorage up`: which cell and which wires each has."""

from collections import Counter

import msgspec
import pytest

from moorage.main.config import Config, Hosts
from moorage.main.hosts import planned_hosts


def cells(count: int | None) -> dict[str, str]:
    return {each.host: each.cell for each in planned_hosts(Config(hosts=Hosts(count=count)))}


def test_hosts_that_are_there_by_default_stay_in_the_cells_of_earlier_releases() -> None:
    now, then = cells(None), cells(6)
    assert len(now) == 8
    assert {host: cell for host, cell in now.items() if host in then} == then


def test_each_network_has_two_hosts_in_each_cell_by_default() -> None:
    config = Config()
    pairs = Counter((each.cell, wire) for each in planned_hosts(config) for wire in each.physical_networks)
    wires = {wire for wires in config.hosts.physical_networks for wire in wires}
    assert pairs == {(each.name, wire): 2 for each in config.cells for wire in wires}


@pytest.mark.parametrize("count", [0, 1, 2, 7, 12])
def test_a_configured_number_of_hosts_is_spread_over_the_cells(count: int) -> None:
    config = msgspec.structs.replace(Config(), hosts=Hosts(count=count))
    sizes = Counter(each.cell for each in planned_hosts(config))
    assert sizes.total() == count
    assert max(sizes.values(), default=0) - min((sizes[each.name] for each in config.cells), default=0) <= 1
