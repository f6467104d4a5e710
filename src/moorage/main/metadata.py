"""Builds the metadata service of one process: beside other services, or alone (`moorage metadata`)."""

import asyncio
import uuid

from moorage.api.metadata.app import MetadataApp
from moorage.api.metadata.servers import GuestLookup, MetadataSettings
from moorage.clients.network import NetworkBackend
from moorage.clients.vendor_data import VendorData
from moorage.main.cell_intake import CellIntake
from moorage.main.config import Config
from moorage.main.databases import Databases, open_databases
from moorage.main.flat_networks import flat_network, pools_of
from moorage.main.http_servers import HttpServer
from moorage.main.metadata_secret import shared_secret
from moorage.main.observability import Sources, observe
from moorage.main.region_key import open_seals
from moorage.main.service_clients import make_clients
from moorage.main.store_watch import StoreWatch
from moorage.main.vendor_data import static_vendor_data
from moorage.model.clock import SystemClock
from moorage.operations.encryption import Encryption
from moorage.operations.process_heartbeat import Presence

ROLE = "metadata"


def make_metadata(
    config: Config, databases: Databases, network: NetworkBackend, vendor_data: VendorData | None, seals: Encryption
) -> MetadataApp:
    """Build the service from these databases and clients."""
    flat = config.network.backend == "flat"
    guests = GuestLookup(
        databases.region,
        {str(cell): database for cell, database in databases.cells.items()},
        MetadataSettings(
            kept_s=config.metadata.kept_s,
            domain=config.metadata.dhcp_domain,
            static_vendor_data=static_vendor_data(config),
            pools=pools_of(config) if flat else (),
        ),
        SystemClock(),
        network=network.network,
        vendor_data=vendor_data,
        decrypted=seals.server,
    )
    return MetadataApp(
        guests,
        shared_secret="" if flat else shared_secret(config),
        by_address=flat,
        trusted_proxies=config.metadata.trusted_proxies,
    )


async def metadata(config: Config, stopping: asyncio.Event) -> None:
    """Run the role `metadata`: it reads the databases and asks the network service; it has no scheduler, no bus and no hosts."""
    door = HttpServer(ROLE, config.api.metadata, config)
    observed = await observe(config, ROLE)
    databases = await open_databases(config)
    clock = SystemClock()
    stores = StoreWatch(databases.region, databases.cells, clock)
    await stores.start()
    intake = CellIntake(databases, stores, clock)
    intake.start()
    clients = make_clients(config)
    flat = config.network.backend == "flat"
    network = flat_network(config, databases.region, lambda _: None) if flat else clients.network
    seals = await open_seals(config, databases.region)
    await door.open(observed.app(ROLE, make_metadata(config, databases, network, clients.vendor_data, seals)))
    presence = Presence(databases.region, clock, f"{ROLE}-{uuid.uuid4().hex[:12]}", ROLE)
    await presence.start()
    observed.sees(Sources(databases=databases.by_name, services=clients.services, doors={ROLE: door}))
    print(f"moorage: metadata on {config.api.metadata.url}: ready", flush=True)
    await stopping.wait()
    await door.close()
    await presence.stop()
    await intake.stop()
    await clients.close()
    await stores.stop()
    await databases.close()
    await observed.close()
