"""Valid bodies for services without Structs; values in angle brackets are drawn anew each time."""

from collections.abc import Mapping
from typing import Any

SAMPLES: Mapping[str, Mapping[str, Any]] = {
    "placement": {
        "POST /resource_classes": {"name": "<class>"},
        "POST /resource_providers": {"name": "<name>", "uuid": "<uuid>", "parent_provider_uuid": "<resource_providers>"},
        "PUT /resource_providers/{uuid}": {"name": "<name>"},
        "PUT /resource_providers/{uuid}/inventories": {
            "resource_provider_generation": "<int>",
            "inventories": {"<class>": {"total": "<int>", "reserved": 0, "min_unit": 1, "max_unit": "<int>", "allocation_ratio": 1.0}},
        },
        "POST /resource_providers/{uuid}/inventories": {"resource_class": "<class>", "total": "<int>"},
        "PUT /resource_providers/{uuid}/inventories/{resource_class}": {"resource_provider_generation": 0, "total": "<int>"},
        "PUT /resource_providers/{uuid}/aggregates": {"aggregates": ["<uuid>"], "resource_provider_generation": "<int>"},
        "PUT /resource_providers/{uuid}/traits": {"traits": ["<class>"], "resource_provider_generation": "<int>"},
        "PUT /allocations/{consumer}": {
            "allocations": {"<resource_providers>": {"resources": {"VCPU": "<int>"}}},
            "project_id": "<name>", "user_id": "<name>", "consumer_generation": None, "consumer_type": "INSTANCE",
        },
        "POST /allocations": {
            "<uuid>": {
                "allocations": {"<resource_providers>": {"resources": {"<class>": "<int>"}}},
                "project_id": "<name>", "user_id": "<name>", "consumer_generation": None,
            }
        },
        "POST /reshaper": {
            "inventories": {"<resource_providers>": {"resource_provider_generation": 0, "inventories": {"VCPU": {"total": "<int>"}}}},
            "allocations": {},
        },
    },
    "identity": {
        "POST auth/tokens": {
            "auth": {
                "identity": {"methods": ["password"], "password": {"user": {"name": "<name>", "domain": {"id": "default"}, "password": "<name>"}}},
                "scope": {"project": {"id": "<projects>"}},
            }
        },
        "POST users": {"user": {"name": "<name>", "domain_id": "default", "password": "<name>", "enabled": True, "email": "<name>"}},
        "PATCH users/*": {"user": {"name": "<name>", "enabled": True, "description": "<text>"}},
        "POST users/*/password": {"user": {"password": "<name>", "original_password": "<name>"}},
        "POST projects": {"project": {"name": "<name>", "domain_id": "default", "description": "<text>", "tags": ["<name>"], "options": {}}},
        "PATCH projects/*": {"project": {"name": "<name>", "description": "<text>"}},
        "PUT projects/*/tags": {"tags": ["<name>"]},
        "POST domains": {"domain": {"name": "<name>", "enabled": True}},
        "PATCH domains/*": {"domain": {"description": "<text>"}},
        "PUT domains/*/config": {"config": {"ldap": {"url": "<text>"}, "identity": {"driver": "ldap"}}},
        "POST roles": {"role": {"name": "<name>", "description": "<text>"}},
        "PATCH roles/*": {"role": {"name": "<name>"}},
        "POST groups": {"group": {"name": "<name>", "domain_id": "default"}},
        "POST regions": {"region": {"id": "<name>", "description": "<text>", "parent_region_id": None}},
        "POST services": {"service": {"type": "<name>", "name": "<name>", "enabled": True}},
        "POST endpoints": {"endpoint": {"service_id": "<services>", "interface": "public", "url": "http://<name>/%(tenant_id)s", "region_id": None}},
        "POST credentials": {"credential": {"type": "ec2", "blob": '{"access":"a","secret":"b"}', "project_id": "<projects>", "user_id": "<users>"}},
        "POST users/*/credentials/OS-EC2": {"tenant_id": "<projects>"},
        "POST users/*/application_credentials": {
            "application_credential": {
                "name": "<name>", "roles": [{"name": "reader"}], "expires_at": "2030-01-01T00:00:00.000000Z",
                "access_rules": [{"path": "/v2.1/servers", "method": "GET", "service": "compute"}],
            }
        },
        "POST OS-TRUST/trusts": {
            "trust": {"trustor_user_id": "<users>", "trustee_user_id": "<users>", "project_id": "<projects>", "impersonation": True, "roles": []}
        },
        "POST OS-EP-FILTER/endpoint_groups": {"endpoint_group": {"name": "<name>", "filters": {"interface": "public"}}},
    },
    "image": {
        "POST images": {
            "name": "<name>", "disk_format": "raw", "container_format": "bare", "visibility": "private", "min_disk": 0, "min_ram": 0,
            "protected": False, "tags": ["<name>"], "hw_vif_model": "virtio",
        },
        "PATCH images/*": [
            {"op": "add", "path": "/<name>", "value": "<text>"}, {"op": "replace", "path": "/name", "value": "<name>"},
            {"op": "remove", "path": "/<name>"},
        ],
        "POST images/*/members": {"member": "<projects>"},
        "PUT images/*/members/*": {"status": "accepted"},
        "POST images/*/import": {"method": {"name": "glance-direct"}, "all_stores": True, "stores": ["<name>"]},
    },
    "volume": {
        "POST volumes": {
            "volume": {
                "size": 1, "name": "<name>", "description": "<text>", "metadata": {"<name>": "<text>"}, "volume_type": None,
                "imageRef": None, "snapshot_id": None, "source_volid": None, "availability_zone": "nova", "multiattach": False,
            }
        },
        "PUT volumes/*": {"volume": {"name": "<name>", "metadata": {}}},
        "POST volumes/*/action": {"<action>": {"new_size": "<int>", "status": "available", "metadata": {}, "readonly": True, "bootable": True}},
        "POST volumes/*/metadata": {"metadata": {"<name>": "<text>"}},
        "PUT volumes/*/metadata/*": {"meta": {"<name>": "<text>"}},
        "POST snapshots": {"snapshot": {"volume_id": "<volumes>", "name": "<name>", "force": True, "metadata": {}}},
        "PUT snapshots/*": {"snapshot": {"name": "<name>"}},
        "POST snapshots/*/action": {"os-reset_status": {"status": "available"}},
        "POST attachments": {"attachment": {"instance_uuid": "<servers>", "volume_uuid": "<volumes>", "connector": {"host": "h", "ip": "192.0.2.1"}, "mode": "rw"}},
        "PUT attachments/*": {"attachment": {"connector": {"host": "h", "mountpoint": "/dev/vdb"}}},
        "POST attachments/*/action": {"os-complete": None},
        "POST os-volume-transfer": {"transfer": {"volume_id": "<volumes>", "name": "<name>"}},
        "POST volume-transfers/*/accept": {"accept": {"auth_key": "<name>"}},
        "POST types": {"volume_type": {"name": "<name>", "description": "<text>", "extra_specs": {"<name>": "<text>"}, "os-volume-type-access:is_public": True}},
        "PUT types/*": {"volume_type": {"name": "<name>", "is_public": True}},
        "POST types/*/action": {"addProjectAccess": {"project": "<projects>"}},
        "POST types/*/extra_specs": {"extra_specs": {"<name>": "<text>"}},
        "POST types/*/encryption": {"encryption": {"provider": "luks", "cipher": "aes", "key_size": 256, "control_location": "front-end"}},
        "POST qos-specs": {"qos_specs": {"name": "<name>", "consumer": "front-end", "total_iops_sec": "100"}},
        "PUT qos-specs/*": {"qos_specs": {"<name>": "<text>"}},
        "PUT qos-specs/*/delete_keys": {"keys": ["<name>"]},
        "PUT default-types/*": {"default_type": {"volume_type": "<types>"}},
    },
    "network": {
        "POST networks": {"network": {"name": "<name>", "admin_state_up": True, "shared": False, "mtu": 1400, "tags": []}},
        "POST subnets": {
            "subnet": {
                "network_id": "<networks>", "ip_version": 4, "cidr": "<cidr>", "gateway_ip": None, "enable_dhcp": False,
                "allocation_pools": [{"start": "10.9.0.2", "end": "10.9.0.9"}], "dns_nameservers": ["192.0.2.1"],
                "host_routes": [{"destination": "<cidr>", "nexthop": "10.9.0.1"}],
            }
        },
        "POST ports": {
            "port": {
                "network_id": "<networks>", "name": "<name>", "fixed_ips": [{"ip_address": "<address>", "subnet_id": "<subnets>"}],
                "mac_address": "<mac>", "security_groups": ["<security-groups>"], "device_id": "<servers>", "binding:vnic_type": "normal",
                "allowed_address_pairs": [{"ip_address": "<cidr>", "mac_address": "<mac>"}], "binding:profile": {}, "tags": ["<name>"],
            }
        },
        "POST ports/*/bindings": {"binding": {"host": "host1", "vnic_type": "normal", "profile": {}}},
        "POST security-groups": {"security_group": {"name": "<name>", "description": "<text>", "stateful": True}},
        "POST security-group-rules": {
            "security_group_rule": {
                "security_group_id": "<security-groups>", "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp",
                "port_range_min": "<int>", "port_range_max": "<int>", "remote_ip_prefix": "<cidr>", "remote_group_id": None,
            }
        },
        "POST routers": {"router": {"name": "<name>", "external_gateway_info": {"network_id": "<networks>", "external_fixed_ips": []}}},
        "PUT routers/*/add_router_interface": {"subnet_id": "<subnets>", "port_id": "<ports>"},
        "PUT routers/*/remove_router_interface": {"subnet_id": "<subnets>"},
        "PUT routers/*/add_extraroutes": {"router": {"routes": [{"destination": "<cidr>", "nexthop": "<address>"}]}},
        "POST floatingips": {"floatingip": {"floating_network_id": "<networks>", "port_id": "<ports>", "floating_ip_address": "<address>"}},
        "POST subnetpools": {"subnetpool": {"name": "<name>", "prefixes": ["<cidr>"], "default_prefixlen": "<int>", "address_scope_id": None}},
        "POST address-scopes": {"address_scope": {"name": "<name>", "ip_version": 4, "shared": False}},
        "POST address-groups": {"address_group": {"name": "<name>", "addresses": ["<cidr>"]}},
        "PUT address-groups/*/add_addresses": {"address_group": {"addresses": ["<cidr>"]}},
        "POST segments": {"segment": {"network_id": "<networks>", "network_type": "vlan", "physical_network": "p", "segmentation_id": "<int>"}},
        "POST rbac-policies": {"rbac_policy": {"object_type": "network", "object_id": "<networks>", "action": "access_as_shared", "target_tenant": "*"}},
        "POST qos/policies": {"policy": {"name": "<name>", "shared": False}},
        "POST qos/policies/*/bandwidth_limit_rules": {"bandwidth_limit_rule": {"max_kbps": "<int>", "max_burst_kbps": "<int>", "direction": "egress"}},
        "POST qos/policies/*/minimum_bandwidth_rules": {"minimum_bandwidth_rule": {"min_kbps": "<int>", "direction": "egress"}},
        "POST trunks": {"trunk": {"name": "<name>", "port_id": "<ports>", "sub_ports": [{"port_id": "<ports>", "segmentation_type": "vlan", "segmentation_id": "<int>"}]}},
        "PUT trunks/*/add_subports": {"sub_ports": [{"port_id": "<ports>", "segmentation_type": "vlan", "segmentation_id": "<int>"}]},
        "PUT networks/*/tags": {"tags": ["<name>"]},
        "PUT quotas/*": {"quota": {"network": "<int>", "port": "<int>"}},
    },
}  # fmt: skip

ACTIONS = (
    "os-attach", "os-detach", "os-reserve", "os-unreserve", "os-begin_detaching", "os-roll_detaching", "os-extend", "os-retype",
    "os-set_bootable", "os-set_image_metadata", "os-show_image_metadata", "os-unset_image_metadata", "os-update_readonly_flag",
    "os-reset_status", "os-force_delete", "os-force_detach", "os-initialize_connection", "os-terminate_connection", "os-migrate_volume",
    "os-volume_upload_image", "revert", "os-unmanage", "os-reimage",
)  # fmt: skip
CONSOLE_PATHS = (
    "GET /", "GET /login", "GET /server/*", "GET /servers", "GET /fit-map", "GET /static/js/main.js", "GET /static/*", "GET /*/*/*",
    "GET /api/session", "GET /api/projects", "GET /api/topic", "GET /events", "HEAD /", "PUT /api/change", "POST /api/login", "POST /api/project", "POST /api/logout",
    "POST /api/change",
)  # fmt: skip
PLAIN_PATHS: Mapping[str, tuple[str, ...]] = {
    "metadata": (
        "/", "/openstack", "/openstack/latest", "/openstack/latest/meta_data.json", "/openstack/2018-08-27/network_data.json",
        "/openstack/latest/vendor_data2.json", "/openstack/latest/user_data", "/openstack/latest/password", "/latest/meta-data/",
        "/latest/meta-data/public-keys/0/openssh-key", "/2009-04-04/user-data", "/healthcheck",
    ),
    "console": ("/", "/vnc_lite.html", "/websockify?token=*", "/?token=*", "/healthcheck", "/core/rfb.js", "/../../etc/passwd"),
}  # fmt: skip
