"""Builds the Compute API of one process: joins the application context and the parts of the region."""

from collections.abc import Awaitable, Callable

from moorage.api.app import ComputeApp
from moorage.api.context import DRY_RUNS_KEPT_MAX, ApiSettings, AppContext
from moorage.api.policy import Policy
from moorage.conductor.reconcilers.host_aggregates import HostAggregates
from moorage.main.composition import RegionProcess
from moorage.main.consoles import consoles_of
from moorage.model.principal import Principal
from moorage.model.rate_buckets import RateBuckets
from moorage.operations.limits_elsewhere import LimitsElsewhere
from moorage.operations.server_service import ServerService


def limit_warnings_of(region: RegionProcess) -> Callable[[], Awaitable[tuple[str, ...]]]:
    """What operators are told of the limits that hold, or of limits elsewhere that do not."""
    if region.limits is not None:
        return region.limits.warnings
    return LimitsElsewhere(region.clients.identity.limited_resources).warnings


def make_compute_app(region: RegionProcess) -> ComputeApp:
    """Build the Compute API over this process's region."""
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
            quotas=config.quota.defaults,
            service_down_s=config.api.service_down_s,
            enable_instance_password=config.api.enable_instance_password,
            default_zone=config.compute.default_availability_zone,
        ),
        cells={str(cell): database for cell, database in region.databases.cells.items()},
        operations=ServerService(region.context, region.bus),
        network=region.clients.network,
        image=region.clients.images,
        volume=region.clients.volumes,
        user_data=region.seals.shown,
        placement=region.engine,
        consoles=consoles_of(region),
        notification_writer=None if region.notifications is None else region.notifications.notification_writer,
        project_exists=region.clients.identity.project_exists,
        reload_aggregates=HostAggregates(region.engine).run,
        gate_facts=region.gates.facts,
        limit_warnings=limit_warnings_of(region),
        unified_limits=region.context.unified_limits,
        open_circuits=region.gates.service_circuits,
        dry_runs=RateBuckets(config.api.dry_runs_per_minute / 60, config.api.dry_runs_per_minute, DRY_RUNS_KEPT_MAX),
    )

    async def authenticate(token: str, service_token: str | None) -> Principal:
        return await region.clients.identity.validate(token, service_token)

    return ComputeApp(context, authenticate)
