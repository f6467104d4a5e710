"""The embedded network service, joined: `make_network` gives the ASGI app and what `main` needs to seed it."""

from collections.abc import Iterable, Sequence
from typing import Any

from starlette.types import ASGIApp

from moorage.sql import Database
from moorage.sql.migrate import migrate
from moorage_embedded.http_kit.endpoint import ValidateToken
from moorage_embedded.network import hosts, networks, subnets
from moorage_embedded.network.guarantees import ChangeGuarantees
from moorage_embedded.network.hosts import HostNetworks
from moorage_embedded.network.http import NetworkEndpoint, Runner
from moorage_embedded.network.outbox import ComputeOutbox, NotifyCompute, SegmentInventory, SegmentReports
from moorage_embedded.network.request import OURSELVES, NetworkCall, NetworkSettings, touched
from moorage_embedded.network.segments import create as create_segments
from moorage_embedded.network.service_info import pool_size
from moorage_embedded.network.store import TABLES, Doc, NetworkStore

__all__ = ["HostNetworks", "NetworkService", "NetworkSettings", "SegmentInventory", "SegmentReports", "make_network"]


class NetworkService:
    """One embedded network service; `start` before the first request, `stop` after the last."""

    def __init__(
        self,
        database: Database,
        public_url: str,
        validate_token: ValidateToken,
        notify_compute: NotifyCompute | None,
        placement: SegmentReports | None,
        settings: NetworkSettings,
        guarantees: ChangeGuarantees | None = None,
    ) -> None:
        self._database = database
        self.outbox = ComputeOutbox(notify_compute, placement, self._inventory)
        self._runner = Runner(database, settings, self.outbox, guarantees)
        self._endpoint = NetworkEndpoint(self._runner, public_url, validate_token)
        self.app: ASGIApp = self._endpoint

    async def start(self) -> None:
        """Make the tables that are missing, and begin to tell compute and placement."""
        await migrate(self._database, TABLES)
        self.outbox.start()

    def end_waits(self) -> None:
        """Answer whoever waits for changes: the service is about to stop."""
        self._endpoint.descriptions.end_waits()

    async def stop(self) -> None:
        self.end_waits()
        await self.outbox.stop()

    # ------------------------------------------------------------------------------------------------ hosts

    async def declare_hosts(self, declared: Iterable[HostNetworks]) -> None:
        """Say which compute hosts there are and what they are wired to; saying it again is no harm."""
        each = list(declared)

        def work(call: NetworkCall) -> None:
            call.segments |= hosts.declare(call.store, each)

        await self._runner.write(OURSELVES, work)

    async def set_host_alive(self, host: str, alive: bool) -> bool:
        """A dead agent binds nothing. False when there is no such host."""
        return await self._runner.write(OURSELVES, lambda call: hosts.set_alive(call.store, host, alive))

    async def set_port_status(self, port: str, status: str) -> bool:
        """Set the status that the host's plumbing reports (`ACTIVE`, `DOWN`); compute gets an event when the port came
        up or went down.
        """

        def work(call: NetworkCall) -> bool:
            found = call.store.get("port", port, lock=True)
            if found is None or found["status"] == status:
                return found is not None
            found["status"] = status
            call.store.put("port", touched(found))
            call.queue_compute_event("network-vif-plugged" if status == "ACTIVE" else "network-vif-unplugged", found)
            return True

        return await self._runner.write(OURSELVES, work)

    # ------------------------------------------------------------------------------------------------ seeding

    async def seed_network(self, name: str, project: str, **attributes: Any) -> Doc:
        """The network of that name and project, made if there is none."""

        def work(call: NetworkCall) -> Doc:
            for found in call.store.many("network", where={"project": [project]}):
                if found["name"] == name:
                    return found
            return networks.create(call, [attributes | {"name": name, "project_id": project}])[0]

        return await self._runner.write(OURSELVES, work)

    async def seed_subnet(self, name: str, network: Doc, cidr: str, **attributes: Any) -> Doc:
        """The subnet of that name on the network, made if there is none."""

        def work(call: NetworkCall) -> Doc:
            for found in call.store.children("subnet", network["id"]):
                if found["name"] == name:
                    return found
            said = {"ip_version": 6 if ":" in cidr else 4} | attributes
            said |= {"name": name, "network_id": network["id"], "cidr": cidr, "project_id": network["project_id"]}
            return subnets.create(call, [said])[0]

        return await self._runner.write(OURSELVES, work)

    async def seed_segment(self, name: str, network: Doc, **attributes: Any) -> Doc:
        """The segment of that name on the network, made if there is none."""

        def work(call: NetworkCall) -> Doc:
            for found in call.store.children("segment", network["id"]):
                if found["name"] == name:
                    return found
            return create_segments(call, [attributes | {"name": name, "network_id": network["id"]}])[0]

        return await self._runner.write(OURSELVES, work)

    async def segments_of(self, network: Doc) -> list[Doc]:
        """The network's segments; the first is the one it was made with."""

        def work(call: NetworkCall) -> list[Doc]:
            found = call.store.get("network", network["id"])
            order = [each["id"] for each in found["_segments"]] if found else []
            return sorted(call.store.children("segment", network["id"]), key=lambda each: order.index(each["id"]))

        return await self._runner.read(OURSELVES, work)

    # ------------------------------------------------------------------------------------------------ placement

    async def _inventory(self, segment: str) -> SegmentInventory | None:
        return await self._database.read(lambda tx: inventory_of(NetworkStore(tx), segment))

    async def inventories(self) -> Sequence[SegmentInventory]:
        """Every segment with IPv4 subnets, as placement should hold it."""

        def work(store: NetworkStore) -> list[SegmentInventory]:
            found = (inventory_of(store, each["id"]) for each in store.many("segment"))
            return [each for each in found if each is not None]

        return await self._database.read(lambda tx: work(NetworkStore(tx)))


def inventory_of(store: NetworkStore, segment: str) -> SegmentInventory | None:
    """None when there is no such segment, or no IPv4 subnet on it."""
    record = store.get("segment", segment)
    if record is None:
        return None
    on = [
        each
        for each in store.children("subnet", record["network_id"])
        if each["segment_id"] == segment and each["ip_version"] == 4
    ]
    if not on:
        return None
    foreign = store.count_foreign([each["id"] for each in on])
    return SegmentInventory(
        segment,
        record["network_id"],
        total=sum(pool_size(each) for each in on),
        reserved=sum(foreign.values()),
        hosts=tuple(hosts.hosts_on(store, record["physical_network"])),
    )


def make_network(
    database: Database,
    *,
    public_url: str,
    validate_token: ValidateToken,
    notify_compute: NotifyCompute | None = None,
    placement: SegmentReports | None = None,
    settings: NetworkSettings | None = None,
    guarantees: ChangeGuarantees | None = None,
) -> NetworkService:
    """Build the service; nothing is touched before `start`."""
    return NetworkService(
        database, public_url, validate_token, notify_compute, placement, settings or NetworkSettings(), guarantees
    )
