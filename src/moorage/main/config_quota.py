"""The table `[quota]` of the configuration: whose limits hold, and the default limits of our own."""

from typing import Literal

import msgspec

from moorage.clients.compute_limits import EndpointWish
from moorage.model.errors import Invalid
from moorage.model.quota import DEFAULT_LIMITS
from moorage.model.resources import STANDARD_CLASSES
from moorage.model.unified_limits import SERVERS, is_resource
from moorage.operations.unified_limits import MissingLimits


class Quota(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Default limits of a project (Nova's names and numbers), -1 is no limit; or the limits of the identity service."""

    instances: int = 10
    cores: int = 20
    ram: int = 51200
    metadata_items: int = 128
    key_pairs: int = 100
    server_groups: int = 10
    server_group_members: int = 10
    driver: Literal["local", "unified_limits"] = "local"
    """`unified_limits`: registered limits and limits of `compute` at the identity service hold, as with Nova's `UnifiedLimitsDriver`."""
    unified_limits_resource_strategy: Literal["require", "ignore"] = "require"
    """What holds without a registered limit: `require`: nothing of the listed resources is allowed, and any amount of others; `ignore`: the opposite."""
    unified_limits_resource_list: tuple[str, ...] = (SERVERS,)
    """Names of limits: `servers`, `class:VCPU`, `server_key_pairs` …"""
    endpoint_id: str = ""
    """The endpoint of compute to whose service and region the limits belong (oslo.limit's `endpoint_id`); empty: the catalog names one."""
    endpoint_region: str = ""
    """Region of that endpoint, where the catalog names several."""
    endpoint_interface: Literal["public", "internal", "admin"] = "public"
    system_scope: bool = False
    """Whether limits are read with a token of the system (oslo.limit's `system_scope`); older Keystones show others no limits of projects."""

    @property
    def defaults(self) -> dict[str, int]:
        """The default limits by name."""
        return {name: getattr(self, name) for name in self.__struct_fields__ if name in DEFAULT_LIMITS}

    @property
    def endpoint(self) -> EndpointWish:
        return EndpointWish(self.endpoint_id, self.endpoint_region, self.endpoint_interface)

    @property
    def missing(self) -> MissingLimits:
        return MissingLimits(self.unified_limits_resource_strategy, self.unified_limits_resource_list)


def check_quota(quota: Quota) -> None:
    """Raises Invalid for a name that no limit can have."""
    classes = frozenset(STANDARD_CLASSES)
    for name in quota.unified_limits_resource_list:
        if not is_resource(name, classes):
            raise Invalid(
                f"[quota] unified_limits_resource_list: {name!r} is no limit of compute: `servers`, `server_key_pairs`, `class:VCPU`, "
                "`class:CUSTOM_…` are"
            )
