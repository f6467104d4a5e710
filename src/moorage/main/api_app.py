"""The front desk of one process: a Desk over this region's rooms, behind the Compute API."""

from dataclasses import dataclass

from moorage.api.app import ComputeApp
from moorage.api.context import ApiSettings, AppContext
from moorage.api.policy import Policy
from moorage.conductor.reconcilers.host_aggregates import HostAggregates
from moorage.main.composition import RegionProcess
from moorage.main.consoles import consoles_of
from moorage.model.principal import Principal
from moorage.operations.server_service import SagaServerService
from moorage.sql import Database


@dataclass(frozen=True)
class CellsReader:
    """`api.context.CellsReader` over the configured databases."""

    databases: dict[str, Database]

    def all(self) -> dict[str, Database]:
        return self.databases


def make_frontdesk(region: RegionProcess) -> ComputeApp:
    """The Compute API over this process's region."""
    config = region.config
    context = AppContext(
        region=region.databases.region,
        policy=Policy.of_file(config.api.policy_file or None),
        config=ApiSettings(
            public_url=config.api.compute.public_url,
            identity_url=config.identity.url or f"{config.api.identity.url}/v3",
            image_url=config.image.url or config.api.image.url,
            usage_audit_period=config.notifications.usage_audit_period,
            body_max_bytes=config.api.body_max_bytes,
            page_max_rows=config.api.max_limit,
            cors_origins=config.api.cors_allowed_origins,
            quotas={name: getattr(config.quota, name) for name in config.quota.__struct_fields__},
            enable_instance_password=config.api.enable_instance_password,
            default_zone=config.compute.default_availability_zone,
        ),
        cells=CellsReader({str(cell): database for cell, database in region.databases.cells.items()}),
        operations=SagaServerService(region.context, region.bus),
        network=region.clients.network,
        image=region.clients.images,
        identity=region.clients.identity,
        volume=region.clients.volumes,
        user_data=region.seals.shown,
        nouns={
            "project_exists": region.clients.identity.project_exists,
            "aggregates_changed": HostAggregates(region.engine).run,
            "placement": region.engine,
            "bus": region.bus,
            "gates": region.gates.facts,
            "neighbours": region.gates.neighbours,
            "herald": None if region.told is None else region.told.notification_writer,
            "hosts": region.context.hosts,
            "consoles": consoles_of(region),
        },
    )

    async def authenticate(token: str, service_token: str | None) -> Principal:
        return await region.clients.identity.validate(token, service_token)

    return ComputeApp(context, authenticate)
