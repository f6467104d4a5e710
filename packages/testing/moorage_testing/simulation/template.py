"""The cloud that every simulation begins with, made once in each interpreter: tables, users, networks, hosts that have reported.

It is made by the product itself on a virtual clock, and kept as what its databases hold.
"""

import asyncio
import atexit
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from moorage.main.config import ApiConfig, Cell, Compute, Config, Hosts, Quota, RegionSettings
from moorage.main.config_scheduler import Scheduler
from moorage.main.embedded import host_networks
from moorage.main.seed_data import seed
from moorage.main.service_clients import admin_password, demo_password, service_password
from moorage_testing.logins import CHEAP_LOGINS
from moorage_testing.simulation.client import SimulatedClient
from moorage_testing.simulation.cloud import SimulatedCloud
from moorage_testing.simulation.determinism import determined
from moorage_testing.simulation.loop import VirtualLoop
from moorage_testing.simulation.plan import HOSTS, OTHER_HOSTS
from moorage_testing.simulation.roles import ApiRole, EmbeddedServicesRole, people
from moorage_testing.simulation.setting import KnownIds, set_up

WIRES = ("physnet1", "physnet1", "physnet2", "physnet2", "physnet1", "physnet1", "physnet2")
"""Of each host: what is on one of them has two hosts of one cell, or hosts of two."""
GOODBYE_S = 1.0
"""An agent says that it leaves: the conductors write that down before they leave themselves."""
READY_S = 120.0
COPIED_S = 180.0
"""How long a host may take to copy or send a disk: a hypervisor that hangs over it is given up before everything must be at rest."""


class Template(msgspec.Struct, frozen=True):
    """What a new simulation is given."""

    config: Config
    stores: dict[str, bytes]
    known: KnownIds
    passed_s: float
    """How far the clock had come when it was ready."""


_made: dict[bool, Template] = {}


def template(*, cross_cell: bool = False) -> Template:
    """The one of this interpreter; `cross_cell`: that of three cells, in which everybody may have servers moved to other cells."""
    if cross_cell not in _made:
        _made[cross_cell] = _make(cross_cell=cross_cell)
    return _made[cross_cell]


def _config(room: Path, *, cross_cell: bool) -> Config:
    cells = ("cell1", "cell2", *(("cell3",) if cross_cell else ()))
    hosts = (*HOSTS, *(OTHER_HOSTS if cross_cell else ()))
    return Config(
        data_dir=str(room),
        cells=tuple(Cell(each) for each in cells),
        api=ApiConfig(policy_file=_policy(room)) if cross_cell else ApiConfig(),
        scheduler=Scheduler(
            cross_cell_move_weight_multiplier=-10_000.0 if cross_cell else 10_000.0,
            decisions_bytes_max=0,  # their files are written by a thread, which no seed holds
        ),
        quota=Quota(instances=-1, cores=-1, ram=-1),
        security_compliance=CHEAP_LOGINS,
        hosts=Hosts(
            count=len(hosts),
            vcpus=2,
            ram_mib=2048,
            disk_gib=60,
            bandwidth_kbps=10_000,
            virtual_functions=2,
            physical_networks=tuple((wire,) for wire in WIRES[: len(hosts)]),
        ),
        region=RegionSettings(durability="process"),
        compute=Compute(image_deadline_s=COPIED_S),
        token_life_s=10_000_000.0,
        log_level="error",
    )


def _policy(room: Path) -> str:
    """The file of it."""
    file = room / "policy.json"
    file.write_text(json.dumps({"compute:servers:resize:cross_cell": "@"}))
    return str(file)


def _make(*, cross_cell: bool) -> Template:
    memory = Path("/dev/shm")
    room = Path(tempfile.mkdtemp(prefix="moorage-simulation-", dir=memory if memory.is_dir() else None))
    atexit.register(shutil.rmtree, room, ignore_errors=True)
    loop = VirtualLoop()
    config = _config(room, cross_cell=cross_cell)
    cloud = SimulatedCloud(config, "template", room / "template", loop)
    with determined(loop, "template", cloud.machine("world")):
        known = loop.run(_grow(cloud))
        stores = {name: store.dump() for name, store in cloud.stores.items()}
        cloud.leave()
    return Template(config, stores, known, loop.now)


async def _grow(cloud: SimulatedCloud) -> KnownIds:
    await cloud.databases()
    people(cloud)
    neighbours, api = cloud.roles["neighbours"], cloud.roles["api"]
    assert isinstance(neighbours, EmbeddedServicesRole)
    assert isinstance(api, ApiRole)
    neighbours.start()
    while not neighbours.ready:  # noqa: ASYNC110  virtual time costs nothing
        await asyncio.sleep(0.1)
    services = neighbours.embedded
    assert services is not None
    assert services.identity is not None
    assert services.network is not None
    demo = await services.identity.project_id("demo")
    await services.network.declare_hosts(host_networks(cloud.config, cloud.plans))
    await seed(cloud.config, cloud.database("region"), services.image, services.network, demo)
    tokens = {
        "admin": await _token(cloud, "admin", "admin", admin_password(cloud.config)),
        "demo": await _token(cloud, "demo", "demo", demo_password(cloud.config)),
        "service": await _token(
            cloud, cloud.config.service_user.user, cloud.config.service_user.project, service_password(cloud.config)
        ),
    }
    for role in cloud.roles.values():
        role.start()
    async with asyncio.timeout(READY_S):
        while not all(role.ready for role in cloud.roles.values()) or not _hosts_known(api, cloud):  # noqa: ASYNC110  the same
            await asyncio.sleep(0.5)
    known = await set_up(cloud, tokens, demo)
    await asyncio.sleep(60.0)  # every round has run: segments and devices are drawn
    for role in reversed(cloud.roles.values()):
        await role.stop()
        await asyncio.sleep(GOODBYE_S)
    return known


def _hosts_known(api: ApiRole, cloud: SimulatedCloud) -> bool:
    assert api.region is not None
    return {plan.host for plan in cloud.plans} <= api.region.engine.world().slots_by_name.keys()


async def _token(cloud: SimulatedCloud, user: str, project: str, password: str) -> str:
    domain = {"id": "default"}
    who = {"name": user, "domain": domain, "password": password}
    asked: dict[str, Any] = {
        "auth": {
            "identity": {"methods": ["password"], "password": {"user": who}},
            "scope": {"project": {"name": project, "domain": domain}},
        }
    }
    reply = await SimulatedClient(cloud, "").ask("identity", "POST", "/auth/tokens", asked)
    assert reply.status == 201, reply
    return reply.headers["x-subject-token"]
