"""`/extensions`: what old clients ask to find out what there is (frozen: since 2.1 versions say it); and `/versions`."""

from moorage.api import versions
from moorage.api.call import Call, Response
from moorage.api.routes import Route
from moorage.model.errors import NotFound
from moorage.model.json_types import JsonObject

RULE = "os_compute_api:extensions"
NAMESPACE = "http://docs.openstack.org/compute/ext/fake_xml"
FROZEN_AT = "2014-12-03T00:00:00Z"

KNOWN = (
    ("NMN", "Multinic"),
    ("OS-DCF", "DiskConfig"),
    ("OS-EXT-AZ", "ExtendedAvailabilityZone"),
    ("OS-EXT-IMG-SIZE", "ImageSize"),
    ("OS-EXT-IPS", "ExtendedIps"),
    ("OS-EXT-IPS-MAC", "ExtendedIpsMac"),
    ("OS-EXT-SRV-ATTR", "ExtendedServerAttributes"),
    ("OS-EXT-STS", "ExtendedStatus"),
    ("OS-FLV-DISABLED", "FlavorDisabled"),
    ("OS-FLV-EXT-DATA", "FlavorExtraData"),
    ("OS-SCH-HNT", "SchedulerHints"),
    ("OS-SRV-USG", "ServerUsage"),
    ("os-access-ips", "AccessIPs"),
    ("os-admin-actions", "AdminActions"),
    ("os-admin-password", "AdminPassword"),
    ("os-agents", "Agents"),
    ("os-aggregates", "Aggregates"),
    ("os-assisted-volume-snapshots", "AssistedVolumeSnapshots"),
    ("os-attach-interfaces", "AttachInterfaces"),
    ("os-availability-zone", "AvailabilityZone"),
    ("os-baremetal-ext-status", "BareMetalExtStatus"),
    ("os-baremetal-nodes", "BareMetalNodes"),
    ("os-block-device-mapping", "BlockDeviceMapping"),
    ("os-block-device-mapping-v2-boot", "BlockDeviceMappingV2Boot"),
    ("os-cell-capacities", "CellCapacities"),
    ("os-cells", "Cells"),
    ("os-certificates", "Certificates"),
    ("os-cloudpipe", "Cloudpipe"),
    ("os-cloudpipe-update", "CloudpipeUpdate"),
    ("os-config-drive", "ConfigDrive"),
    ("os-console-auth-tokens", "ConsoleAuthTokens"),
    ("os-console-output", "ConsoleOutput"),
    ("os-consoles", "Consoles"),
    ("os-create-backup", "CreateBackup"),
    ("os-create-server-ext", "Createserverext"),
    ("os-deferred-delete", "DeferredDelete"),
    ("os-evacuate", "Evacuate"),
    ("os-extended-evacuate-find-host", "ExtendedEvacuateFindHost"),
    ("os-extended-floating-ips", "ExtendedFloatingIps"),
    ("os-extended-hypervisors", "ExtendedHypervisors"),
    ("os-extended-networks", "ExtendedNetworks"),
    ("os-extended-quotas", "ExtendedQuotas"),
    ("os-extended-rescue-with-image", "ExtendedRescueWithImage"),
    ("os-extended-services", "ExtendedServices"),
    ("os-extended-services-delete", "ExtendedServicesDelete"),
    ("os-extended-status", "ExtendedStatus"),
    ("os-extended-volumes", "ExtendedVolumes"),
    ("os-fixed-ips", "FixedIPs"),
    ("os-flavor-access", "FlavorAccess"),
    ("os-flavor-extra-specs", "FlavorExtraSpecs"),
    ("os-flavor-manage", "FlavorManage"),
    ("os-flavor-rxtx", "FlavorRxtx"),
    ("os-flavor-swap", "FlavorSwap"),
    ("os-floating-ip-dns", "FloatingIpDns"),
    ("os-floating-ip-pools", "FloatingIpPools"),
    ("os-floating-ips", "FloatingIps"),
    ("os-floating-ips-bulk", "FloatingIpsBulk"),
    ("os-fping", "Fping"),
    ("os-hide-server-addresses", "HideServerAddresses"),
    ("os-hosts", "Hosts"),
    ("os-hypervisor-status", "HypervisorStatus"),
    ("os-hypervisors", "Hypervisors"),
    ("os-instance-actions", "InstanceActions"),
    ("os-instance_usage_audit_log", "OSInstanceUsageAuditLog"),
    ("os-keypairs", "Keypairs"),
    ("os-lock-server", "LockServer"),
    ("os-migrate-server", "MigrateServer"),
    ("os-migrations", "Migrations"),
    ("os-multiple-create", "MultipleCreate"),
    ("os-networks", "Networks"),
    ("os-networks-associate", "NetworkAssociationSupport"),
    ("os-pause-server", "PauseServer"),
    ("os-personality", "Personality"),
    ("os-preserve-ephemeral-rebuild", "PreserveEphemeralOnRebuild"),
    ("os-quota-class-sets", "QuotaClasses"),
    ("os-quota-sets", "Quotas"),
    ("os-rescue", "Rescue"),
    ("os-security-group-default-rules", "SecurityGroupDefaultRules"),
    ("os-security-groups", "SecurityGroups"),
    ("os-server-diagnostics", "ServerDiagnostics"),
    ("os-server-external-events", "ServerExternalEvents"),
    ("os-server-group-quotas", "ServerGroupQuotas"),
    ("os-server-groups", "ServerGroups"),
    ("os-server-list-multi-status", "ServerListMultiStatus"),
    ("os-server-password", "ServerPassword"),
    ("os-server-sort-keys", "ServerSortKeys"),
    ("os-server-start-stop", "ServerStartStop"),
    ("os-services", "Services"),
    ("os-shelve", "Shelve"),
    ("os-simple-tenant-usage", "SimpleTenantUsage"),
    ("os-suspend-server", "SuspendServer"),
    ("os-tenant-networks", "OSTenantNetworks"),
    ("os-used-limits", "UsedLimits"),
    ("os-used-limits-for-admin", "UsedLimitsForAdmin"),
    ("os-user-data", "UserData"),
    ("os-user-quotas", "UserQuotas"),
    ("os-virtual-interfaces", "VirtualInterfaces"),
    ("os-volume-attachment-update", "VolumeAttachmentUpdate"),
    ("os-volumes", "Volumes"),
)
"""(alias, name)."""


def _shown(alias: str, name: str) -> JsonObject:
    return {
        "alias": alias,
        "name": name,
        "description": f"{name}.",
        "links": [],
        "namespace": NAMESPACE,
        "updated": FROZEN_AT,
    }


async def index(call: Call[None]) -> Response:
    call.require(RULE, {})
    return Response(body={"extensions": [_shown(alias, name) for alias, name in KNOWN]})


async def show(call: Call[None]) -> Response:
    """Show one extension. Raises NotFound when there is none of that alias."""
    call.require(RULE, {})
    for alias, name in KNOWN:
        if alias == call.path["alias"]:
            return Response(body={"extension": _shown(alias, name)})
    raise NotFound("The resource could not be found.")


async def version(call: Call[None]) -> Response:
    """Answer `GET /v2.1/versions/{id}` with the version document, for clients that ask for it with a token.

    Raises NotFound for another version.
    """
    if call.path["id"] not in versions.NAMES:
        raise NotFound("The resource could not be found.")
    return Response(body=versions.one(call.base_url, call.path["id"]))


ROUTES = (
    Route("GET", "/extensions", index),
    Route("GET", "/extensions/{alias}", show),
    Route("GET", "/versions/{id}", version),
)
