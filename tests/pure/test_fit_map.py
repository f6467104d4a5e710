"""`/ext/fit-map`: its columns equal the provider cache, and ten thousand hosts cost little."""

import base64
import time
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.helpers.world_builder import Cloud

from moorage.api.ext import fit_map
from moorage.model.errors import Unavailable
from moorage.model.world import World

HOSTS, SEGMENTS = 10_000, 64
ANSWER_MS = 300


def a_call(world: World | None) -> Any:
    engine = None if world is None else SimpleNamespace(world=lambda: world)
    clock = SimpleNamespace(now=lambda: 1.0)
    context = SimpleNamespace(clock=clock, placement=engine)
    asked: list[str] = []
    return SimpleNamespace(require=asked.append, context=context, rules=asked)


def small() -> World:
    cloud = Cloud().segment("left", 3, 4).segment("right", 0, 4)
    cloud.host("host2", 8, 8192, wired=("left",)).host("host10", 4, 4096, wired=("left", "right"), cell="d", used=1024)
    cloud.device("host2", "bridge", {"NET_BW_EGR_KILOBIT_PER_SEC": 1000}, used=250)
    cloud.device("host2", "tunnel", {"NET_BW_EGR_KILOBIT_PER_SEC": 500})
    return cloud.world()


async def test_columns_are_in_the_order_of_names() -> None:
    call = a_call(small())
    found = (await fit_map.show(call)).body["fit_map"]
    assert call.rules == ["moorage:fit_map:show"]
    assert list(found["hosts"]["name"]) == ["host10", "host2"]
    assert [found["cells"][each] for each in found["hosts"]["cell"]] == ["d", "c"]
    assert found["resources"]["MEMORY_MB"] == {"free": [3072, 8192], "total": [4096, 8192]}
    assert found["bandwidth"]["egress"] == {"free": [0, 1250], "total": [0, 1500]}
    assert found["bandwidth"]["ingress"] == {"free": [], "total": []}
    wired = {
        each["name"]: np.unpackbits(np.frombuffer(base64.b64decode(each["hosts"]), np.uint8))[:2].tolist()
        for each in found["segments"]
    }
    assert wired == {"left": [1, 1], "right": [1, 0]}
    assert [(each["free"], each["total"]) for each in found["segments"]] == [(3, 4), (0, 4)]


async def test_totals_count_only_hosts_that_accept_servers() -> None:
    cloud = Cloud().segment("left", 3, 4).host("a", 8, wired=("left",)).host("b", 8, cell_disabled=True)
    found = (await fit_map.totals(a_call(cloud.world()))).body["totals"]
    assert found["hosts"] == {"all": 2, "usable": 1}
    assert found["resources"]["VCPU"] == {"free": 8, "total": 8}
    assert found["segments"] == [{"id": "left", "name": "left", "free": 3, "total": 4, "hosts": 1}]


async def test_without_a_cache_the_map_is_unavailable() -> None:
    with pytest.raises(Unavailable):
        await fit_map.show(a_call(None))


async def test_ten_thousand_hosts_cost_little() -> None:
    cloud = Cloud()
    for number in range(SEGMENTS):
        cloud.segment(f"rack-{number}", 200, 252)
    for number in range(HOSTS):
        cloud.host(f"host{number}", wired=(f"rack-{number % SEGMENTS}",))
    call = a_call(cloud.world())
    took_ms = []
    for _ in range(5):
        began = time.process_time()
        body = msgspec.json.encode((await fit_map.show(call)).body)
        took_ms.append((time.process_time() - began) * 1000)
    assert len(body) < 2_000_000
    assert min(took_ms) < ANSWER_MS
