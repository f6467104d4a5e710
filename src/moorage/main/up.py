"""`moorage up`: a whole cloud in one process, ready in seconds, with its state in one data directory."""

import argparse
import asyncio
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from moorage.api.console.app import ConsoleProxy
from moorage.conductor.reconcile_loop import ReconcileLoop
from moorage.main.api_app import make_compute_app
from moorage.main.audit_log import AuditMiddleware, open_audit_log
from moorage.main.clouds_yaml import ADMIN, write_clouds
from moorage.main.composition import RegionProcess, cells_out, open_region, start_conducting
from moorage.main.config import OPTIONAL_PORTS, ApiConfig, Cell, Config, Hosts, checked, read_config
from moorage.main.consoles import consoles_of, open_proxy
from moorage.main.data_dir_lock import DataLock
from moorage.main.event_bridge import EventReceiver
from moorage.main.event_loop import run_loop, settle_memory
from moorage.main.guarantees import GuaranteeWriter
from moorage.main.hosts import HostPlan, LocalHosts, planned_hosts, this_machine
from moorage.main.http_servers import HttpServer
from moorage.main.metadata import make_metadata
from moorage.main.observability import Observed, observe, of_region
from moorage.main.optional_packages import require_embedded
from moorage.main.placement_app import make_placement
from moorage.main.private_data_dir import keep_private
from moorage.main.process import set_up_process, stop_on_signals
from moorage.main.reconcilers import add_rounds
from moorage.main.seed_data import seed
from moorage.main.server_volumes import ServerVolumesOverHttp
from moorage.main.service_clients import OwnApis, admin_password, demo_password, make_own_apis
from moorage.main.webconsole import open_webconsole
from moorage.model.errors import Problem, Unavailable
from moorage.webconsole.app import App as WebConsole

if TYPE_CHECKING:
    from moorage.main.embedded import Embedded

READY_PATIENCE_S = 60.0
USUAL_PORTS = {
    "compute": 8774, "placement": 8778, "identity": 5000, "image": 9292, "network": 9696, "volume": 8776
}  # fmt: skip

REAL_NEXT = """
Next, in another terminal, in this directory, with an image that boots (cloud images of distributions do; `tiny` is an
empty disk):

  export PATH={path}:$PATH OS_CLOUD={cloud}
  openstack image create --disk-format qcow2 --container-format bare --file IMAGE.qcow2 real
  openstack server create --image real --flavor m1.small --network private --wait first
  openstack security group rule create --protocol icmp default
  openstack console log show first
  ping -I "$(ip -br link | awk '/^mrg/ {{print $1; exit}}')" ADDRESS
  openstack server delete --wait first

Ctrl-C stops the cloud, and guests go on; the next start finds them.  `moorage agent clean` removes them and all that was made for them."""


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line; the same settings may be in a TOML file (`--config`)."""
    options = argparse.ArgumentParser(prog="moorage up", description="A whole cloud in one process.")
    options.add_argument("--config", type=Path, help="a TOML file; options of the command line override it")
    options.add_argument("--data-dir", help="where all state lives (default: moorage-data)")
    options.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    options.add_argument(
        "--driver", choices=("simulated", "libvirt"), help="libvirt: this machine is the one host, with real guests"
    )
    options.add_argument("--hosts", type=int, help="how many simulated hosts (default: 8)")
    options.add_argument("--cells", type=int, help="how many cells (default: 2)")
    for name, port in (USUAL_PORTS | OPTIONAL_PORTS).items():
        options.add_argument(f"--{name}-port", type=int, help=f"port of the {name} service (default: {port})")
    options.add_argument("--metrics-port", type=int, help="port of /metrics and /healthz (default: none)")
    options.add_argument("--port-shift", type=int, default=0, help="added to every port, for a second cloud")
    options.add_argument("--durability", choices=("power", "process"), help="what a commit survives (default: power)")
    options.add_argument("--log-level", choices=("debug", "info", "warning", "error"))
    options.add_argument("--no-clouds-yaml", action="store_true", help="do not write clouds.yaml here")
    return options


def configured(arguments: argparse.Namespace) -> Config:
    """Read the configuration file and apply the command line to it."""
    config = read_config(arguments.config)
    replace = msgspec.structs.replace
    api: ApiConfig = config.api
    for name in USUAL_PORTS | OPTIONAL_PORTS:
        listen = getattr(api, name)
        port = (listen.port or OPTIONAL_PORTS.get(name, 0)) + arguments.port_shift
        if (given := getattr(arguments, f"{name}_port")) is not None:
            port = given
        api = replace(api, **{name: replace(listen, host=arguments.host or listen.host, port=port)})
    hosts: Hosts = config.hosts if arguments.hosts is None else replace(config.hosts, count=arguments.hosts)
    cells = config.cells
    if arguments.cells is not None:
        cells = tuple(Cell(f"cell{number + 1}") for number in range(arguments.cells))
    if arguments.driver:
        config = replace(config, agent=replace(config.agent, driver=arguments.driver))
    if config.agent.driver == "libvirt":
        config = with_real_guests(replace(config, api=api))
    region = config.region
    if arguments.durability:
        region = replace(region, durability=arguments.durability)
    metrics = config.metrics
    if (port := arguments.metrics_port if arguments.metrics_port is not None else metrics.port) > 0:
        metrics = replace(metrics, port=port + arguments.port_shift)
    return checked(
        replace(
            config,
            api=api,
            metrics=metrics,
            hosts=hosts,
            cells=cells,
            region=region,
            data_dir=arguments.data_dir or config.data_dir,
            log_level=arguments.log_level or config.log_level,
        )
    )


def with_real_guests(config: Config) -> Config:
    """On the embedded network service this host answers DHCP, and guests' requests for metadata; elsewhere, and without a metadata service, guests
    have config drives."""
    replace = msgspec.structs.replace
    embedded = not config.network.url and config.network.backend == "ports"
    listen, settings = config.api.metadata, config.libvirt
    url, ca_file = settings.metadata_url, settings.metadata_ca_file
    if embedded and listen.port and not url:
        url, ca_file = listen.url, ca_file or str(config.ca_of() or "")
    forced = config.metadata.force_config_drive or not (embedded and url)
    return replace(
        config,
        compute=replace(config.compute, allow_resize_to_same_host=True),  # there is no other host
        libvirt=replace(
            settings,
            dhcp=settings.dhcp or embedded,
            routers=settings.routers or embedded,
            metadata_url=url,
            metadata_ca_file=ca_file,
        ),
        metadata=replace(config.metadata, force_config_drive=forced),
    )


@dataclass
class RunningCloud:
    """One running cloud in this process."""

    config: Config
    lock: DataLock
    doors: dict[str, HttpServer]
    embedded: "Embedded"
    region: RegionProcess
    fleet: LocalHosts
    rounds: ReconcileLoop
    own: OwnApis
    audited: AuditMiddleware
    observed: Observed
    webconsole: WebConsole | None = None
    plans: list[HostPlan] = field(default_factory=list)

    async def stop(self) -> None:
        """Stop the listeners first, so that no new requests come, then everything else. Operations stop where they are; guests run on."""
        if self.webconsole is not None:
            await self.webconsole.close()
        self.embedded.end_waits()
        await asyncio.gather(*(door.close() for door in self.doors.values()))
        await self.audited.close()
        await self.rounds.stop()
        await self.fleet.stop()
        await self.region.stop()
        await self.embedded.stop()
        await self.own.close()
        await self.observed.close()
        self.lock.release()


def _with_hosts_of_its_own(config: Config) -> Config:
    """The configuration without approval of hosts: the hosts are in this process, so nobody has to approve them."""
    settings = config.compute
    replace = msgspec.structs.replace
    return replace(config, compute=replace(settings, approve_hosts=settings.approve_hosts or "automatic"))


async def start_cloud(config: Config) -> RunningCloud:
    """Lock the data directory, bind the ports, open every service, and serve when the hosts have reported.

    Raises Invalid when the package with the embedded services is not installed.
    """
    require_embedded()
    from moorage.main.embedded import host_networks, open_embedded

    config = _with_hosts_of_its_own(config)
    lock = DataLock(config.data)
    listens = {
        name: getattr(config.api, name) for name in ("identity", "image", "network", "volume", "compute", "placement")
    }
    listens |= {name: listen for name in OPTIONAL_PORTS if (listen := getattr(config.api, name)).port}
    doors = {name: HttpServer(name, listen, config) for name, listen in listens.items()}
    observed = await observe(config, "up")
    events, guarantees = EventReceiver(), GuaranteeWriter()
    own = make_own_apis(config)
    embedded = await open_embedded(
        config, notify_compute=events, guarantees=guarantees, server_volumes=ServerVolumesOverHttp(own.compute)
    )
    region = await open_region(config, embedded=embedded.apps)
    events.region = guarantees.region = region
    plans = [this_machine(config)] if config.agent.driver == "libvirt" else planned_hosts(config)
    demo = "" if embedded.identity is None else await embedded.identity.project_id("demo")
    if embedded.network is not None:
        await embedded.network.declare_hosts(host_networks(config, plans))
    await seed(config, region.databases.region, embedded.image, embedded.network, demo)
    audited = open_audit_log(config, region)
    for name, app in embedded.apps.items():
        await doors[name].open(observed.app(name, audited.around(name, app)))
    clients = region.clients
    fleet = LocalHosts(config, region.bus, region.clock, plans, clients.network, clients.image_data, clients.tickets)

    async def hosts() -> None:
        await fleet.start()
        await _all_hosts(region, plans)

    await start_conducting(region, alone=config.holds_region, hosts=hosts)
    rounds = ReconcileLoop(region.clock, region.leads)
    add_rounds(rounds, region)
    await doors["compute"].open(observed.app("compute", audited.around("compute", make_compute_app(region))))
    await doors["placement"].open(observed.app("placement", audited.around("placement", make_placement(region))))
    proxy: ConsoleProxy | None = None
    if "console" in doors:
        proxy = await open_proxy(doors["console"], config, consoles_of(region), observed)
    if "metadata" in doors:
        guests = make_metadata(
            config, region.databases, region.clients.network, region.clients.vendor_data, region.seals
        )
        await doors["metadata"].open(observed.app("metadata", guests))
    webconsole = await open_webconsole(doors["webconsole"], config, observed) if "webconsole" in doors else None
    await region.appear("up")
    observed.sees(of_region(region, rounds, fleet.agents.values, proxy, doors))
    return RunningCloud(config, lock, doors, embedded, region, fleet, rounds, own, audited, observed, webconsole, plans)


async def _all_hosts(region: RegionProcess, plans: list[HostPlan]) -> None:
    """Wait until every host of this process can be chosen, except hosts of cells that are out."""
    try:
        async with asyncio.timeout(READY_PATIENCE_S):
            while _unheard(region, plans):
                await region.clock.sleep(0.01)
    except TimeoutError:
        missing = ", ".join(sorted(_unheard(region, plans)))
        raise Unavailable(f"these hosts did not report in {READY_PATIENCE_S:.0f} s: {missing}") from None


def _unheard(region: RegionProcess, plans: list[HostPlan]) -> set[str]:
    out = region.context.cells.out()
    wanted = {plan.host for plan in plans if plan.cell not in out}
    silent = {name for cell in region.cells for name in cell.unheard()}
    return (wanted - region.engine.world().slots_by_name.keys()) | (wanted & silent)


def print_ready(cloud: RunningCloud, took_s: float, clouds_yaml: Path | None) -> None:
    """Print the endpoints, and the commands to type next."""
    config = cloud.config
    client = Path(sys.prefix) / "bin" / "openstack"
    print(f"\nMoorage is up ({took_s:.1f} s): {_hosts(cloud)} in {len(config.cells)} cells.\n")
    for name, path in (
        ("identity", "/v3"), ("compute", "/v2.1"), ("placement", "/placement"), ("image", ""), ("network", ""), ("volume", "/v3")
    ):  # fmt: skip
        print(f"  {name:10} {getattr(config.api, name).url}{path}")
    for name in sorted(cloud.doors.keys() & OPTIONAL_PORTS.keys()):
        print(f"  {name:10} {getattr(config.api, name).url}")
    if config.metrics.port:
        print(f"  {'metrics':10} http://{config.metrics.host}:{config.metrics.port}/metrics")
    for line in cells_out(cloud.region):
        print(f"\n  {line}")
    print(f"\n  state      {config.data}")
    if clouds_yaml is not None:
        print(f"  clouds     {clouds_yaml} (administrator: {ADMIN}; an ordinary user: {ADMIN}-demo)")
    if config.agent.driver == "libvirt":
        print(REAL_NEXT.format(path=client.parent, cloud=ADMIN), flush=True)
        return
    print(
        f"""
Next, in another terminal, in this directory:

  export PATH={client.parent}:$PATH OS_CLOUD={ADMIN}
  openstack server create --image tiny --flavor m1.tiny --network private --wait first
  openstack server show first
  moorage explain first
  openstack server delete --wait first

Ctrl-C stops the cloud; the next start has the same servers.""",
        flush=True,
    )


def _hosts(cloud: RunningCloud) -> str:
    if cloud.config.agent.driver == "libvirt":
        return f"real guests on {cloud.plans[0].host}"
    return f"{len(cloud.plans)} simulated hosts"


async def run(config: Config, *, clouds_yaml: bool) -> None:
    """Start the cloud, print that it is ready, and run until the process is asked to stop."""
    began = time.monotonic()
    print(f"Moorage: starting a cloud in {config.data} ...", flush=True)
    cloud = await start_cloud(config)
    stopping = stop_on_signals(config)
    written: Path | None = None
    if clouds_yaml:
        path, ours = write_clouds(
            Path.cwd(),
            auth_url=f"{config.api.identity.url}/v3",
            region=config.region.name,
            admin_password=admin_password(config),
            demo_password=demo_password(config),
            ca_file=config.ca_of(),
        )
        written = path if ours else None
        if not ours:
            print(f"note: {path} is not ours and was left as it is")
    settle_memory()
    print_ready(cloud, time.monotonic() - began, written)
    await stopping.wait()
    print("\nMoorage: stopping; guests go on, and unfinished operations continue with the next start.", flush=True)
    await cloud.stop()


def main(argv: list[str]) -> int:
    """Run `moorage up`. Returns 2 for an error that the caller can correct."""
    arguments = parser().parse_args(argv)
    try:
        config = configured(arguments)
        set_up_process(config)
        keep_private(config.data)
        run_loop(run(config, clouds_yaml=not arguments.no_clouds_yaml))
    except Problem as problem:
        print(f"moorage: {problem.public}", file=sys.stderr)
        return 2
    return 0
