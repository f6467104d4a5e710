"""Every path after the project and its handlers."""

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias

from starlette.responses import Response

from moorage_embedded.http_kit.routing import RouteTable
from moorage_embedded.volume import (
    actions,
    attachments,
    group_actions,
    group_snapshots,
    group_types,
    groups,
    messages,
    metadata,
    qos,
    quota_routes,
    service_info,
    services,
    snapshots,
    transfers,
    type_list,
    types,
    volumes,
)
from moorage_embedded.volume.request import VolumeCall

Verb: TypeAlias = Callable[[VolumeCall], Awaitable[Response]]

_TRANSFERS: Mapping[str, Mapping[str, Verb]] = {
    "{}": {"GET": transfers.index, "POST": transfers.create},
    "{}/detail": {"GET": transfers.detail},
    "{}/{{id}}": {"GET": transfers.show, "DELETE": transfers.delete},
    "{}/{{id}}/accept": {"POST": transfers.accept},
}
_METADATA: Mapping[str, Mapping[str, Verb]] = {
    "{}/{{id}}/metadata": {"GET": metadata.index, "POST": metadata.add, "PUT": metadata.replace},
    "{}/{{id}}/metadata/{{key}}": {"GET": metadata.show_one, "PUT": metadata.set_one, "DELETE": metadata.drop_one},
}


def _under(name: str, routes: Mapping[str, Mapping[str, Verb]]) -> dict[str, Mapping[str, Verb]]:
    return {path.format(name): verbs for path, verbs in routes.items()}


ROUTES: Mapping[str, Mapping[str, Verb]] = {
    "volumes": {"GET": volumes.index, "POST": volumes.create},
    "volumes/detail": {"GET": volumes.detail},
    "volumes/summary": {"GET": volumes.summary},
    "volumes/{id}": {"GET": volumes.show, "PUT": volumes.update, "DELETE": volumes.delete},
    "volumes/{id}/action": {"POST": actions.act},
    "volumes/{id}/encryption": {"GET": service_info.encryption_metadata},
    **_under("volumes", _METADATA),
    "snapshots": {"GET": snapshots.index, "POST": snapshots.create},
    "snapshots/detail": {"GET": snapshots.detail},
    "snapshots/{id}": {"GET": snapshots.show, "PUT": snapshots.update, "DELETE": snapshots.delete},
    "snapshots/{id}/action": {"POST": snapshots.act},
    **_under("snapshots", _METADATA),
    "attachments": {"GET": attachments.index, "POST": attachments.create},
    "attachments/detail": {"GET": attachments.detail},
    "attachments/{id}": {"GET": attachments.show, "PUT": attachments.update, "DELETE": attachments.delete},
    "attachments/{id}/action": {"POST": attachments.act},
    **_under("os-volume-transfer", _TRANSFERS),
    **_under("volume-transfers", _TRANSFERS),
    "types": {"GET": type_list.index, "POST": types.create},
    "types/{id}": {"GET": types.show, "PUT": types.update, "DELETE": types.delete},
    "types/{id}/action": {"POST": types.act},
    "types/{id}/os-volume-type-access": {"GET": types.access},
    "types/{id}/extra_specs": {"GET": types.specs, "POST": types.add_specs},
    "types/{id}/extra_specs/{key}": {"GET": types.spec, "PUT": types.set_spec, "DELETE": types.drop_spec},
    "types/{id}/encryption": {"GET": types.encryption, "POST": types.encrypt},
    "types/{id}/encryption/{key}": {
        "GET": types.encryption_item,
        "PUT": types.change_encryption,
        "DELETE": types.decrypt,
    },
    "default-types": {"GET": types.defaults},
    "default-types/{project}": {"GET": types.show_default, "PUT": types.set_default, "DELETE": types.drop_default},
    "qos-specs": {"GET": qos.index, "POST": qos.create},
    "qos-specs/{id}": {"GET": qos.show, "PUT": qos.update, "DELETE": qos.delete},
    "qos-specs/{id}/delete_keys": {"PUT": qos.delete_keys},
    "qos-specs/{id}/associations": {"GET": qos.associations},
    "qos-specs/{id}/associate": {"GET": qos.associate},
    "qos-specs/{id}/disassociate": {"GET": qos.associate},
    "qos-specs/{id}/disassociate_all": {"GET": qos.disassociate_all},
    "os-quota-sets/{id}": {"GET": quota_routes.show, "PUT": quota_routes.update, "DELETE": quota_routes.delete},
    "os-quota-sets/{id}/defaults": {"GET": quota_routes.defaults},
    "os-quota-class-sets/{id}": {"GET": quota_routes.show_class, "PUT": quota_routes.update_class},
    "limits": {"GET": quota_routes.limits},
    "os-services": {"GET": services.services},
    "os-services/enable": {"PUT": services.enable},
    "os-services/disable": {"PUT": services.disable},
    "os-services/disable-log-reason": {"PUT": services.disable_with_reason},
    "os-services/freeze": {"PUT": services.freeze},
    "os-services/thaw": {"PUT": services.thaw},
    "os-hosts": {"GET": services.hosts},
    "os-hosts/{host}": {"GET": services.host},
    "messages": {"GET": messages.index},
    "messages/{id}": {"GET": messages.show, "DELETE": messages.delete},
    "os-availability-zone": {"GET": service_info.zones},
    "extensions": {"GET": service_info.extensions},
    "extensions/{alias}": {"GET": service_info.extensions},
    "scheduler-stats/get_pools": {"GET": service_info.pools},
    "capabilities/{host}": {"GET": service_info.capabilities},
    "resource_filters": {"GET": service_info.resource_filters},
    "workers/cleanup": {"POST": service_info.nothing_to_clean},
    **{path: {"GET": service_info.none_of_them} for path in service_info.EMPTY},
    **{f"{path}/detail": {"GET": service_info.none_of_them} for path in service_info.EMPTY},
    **{
        f"{path}/{{id}}": {
            "GET": service_info.no_such_one,
            "PUT": service_info.no_such_one,
            "DELETE": service_info.no_such_one,
        }
        for path in service_info.ONE
    },
    "manageable_volumes": {"GET": service_info.manageable},
    "manageable_volumes/detail": {"GET": service_info.manageable},
    "manageable_snapshots": {"GET": service_info.manageable},
    "manageable_snapshots/detail": {"GET": service_info.manageable},
    "backups": {"GET": service_info.none_of_them, "POST": service_info.no_backup},
    "group_types": {"GET": group_types.index, "POST": group_types.create},
    "group_types/{id}": {"GET": group_types.show, "PUT": group_types.update, "DELETE": group_types.delete},
    "group_types/{id}/group_specs": {"GET": group_types.specs, "POST": group_types.add_specs},
    "group_types/{id}/group_specs/{key}": {
        "GET": group_types.spec,
        "PUT": group_types.set_spec,
        "DELETE": group_types.drop_spec,
    },
    "groups": {"GET": groups.index, "POST": groups.create},
    "groups/detail": {"GET": groups.detail},
    "groups/action": {"POST": group_actions.act_without_group},
    "groups/{id}": {"GET": groups.show, "PUT": groups.update},
    "groups/{id}/action": {"POST": group_actions.act},
    "group_snapshots": {"GET": group_snapshots.index, "POST": group_snapshots.create},
    "group_snapshots/detail": {"GET": group_snapshots.detail},
    "group_snapshots/{id}": {"GET": group_snapshots.show, "DELETE": group_snapshots.delete},
    "group_snapshots/{id}/action": {"POST": group_snapshots.act},
}

TABLE = RouteTable("volume", "/v3", ROUTES)
"""A method that a path does not have is 404, too: Cinder has no 405."""
