"""Calls that show the change of a microversion; each is made just below the version, and at it.

A change of a noun that other tests prove more fully (servers) may stand in `PROVED_ELSEWHERE`, with the test that does.
"""

from typing import Any, TypeAlias

from moorage.api.host_view import past_number
from moorage.placement.inventory import host_id

Ask: TypeAlias = tuple[str, str, Any]
"""(method, path, body)."""

PUBLIC = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBPvpyYTIKHhKDGDB8G1DPrYZ4mNf0pYNLtkuSJUsUsv somebody"
KEY = {"name": "new", "public_key": PUBLIC}
FLAVOR = {"name": "new", "id": "9", "ram": 1, "vcpus": 1, "disk": 0}
PROJECT = "b" * 32

EXCHANGES: dict[tuple[int, int], tuple[Ask, ...]] = {
    (2, 2): (
        ("POST", "/os-keypairs", {"keypair": KEY}),
        ("POST", "/os-keypairs", {"keypair": {**KEY, "name": "typed", "type": "ssh"}}),
        ("GET", "/os-keypairs", None),
        ("GET", "/os-keypairs/known", None),
        ("DELETE", "/os-keypairs/new", None),
    ),
    (2, 7): (("POST", "/flavors/1/action", {"addTenantAccess": {"tenant": PROJECT}}),),
    (2, 10): (
        ("POST", "/os-keypairs", {"keypair": {**KEY, "user_id": "c" * 32}}),
        ("GET", f"/os-keypairs?user_id={'c' * 32}", None),
    ),
    (2, 11): (
        ("GET", "/os-services", None),
        ("PUT", "/os-services/force-down", {"host": "host1", "binary": "nova-compute", "forced_down": True}),
    ),
    (2, 13): (("GET", "/os-server-groups", None),),
    (2, 15): (("POST", "/os-server-groups", {"server_group": {"name": "g", "policies": ["soft-affinity"]}}),),
    (2, 28): (("GET", f"/os-hypervisors/{past_number(host_id('host1'))}", None),),
    (2, 33): (("GET", "/os-hypervisors?limit=1", None),),
    (2, 35): (("GET", "/os-keypairs?limit=1", None),),
    (2, 36): (
        ("GET", "/limits", None),
        ("GET", f"/os-quota-sets/{PROJECT}", None),
        ("PUT", f"/os-quota-sets/{PROJECT}", {"quota_set": {"fixed_ips": 3}}),
        ("GET", "/images", None),
    ),
    (2, 39): (("GET", "/limits", None), ("GET", "/images/17/metadata", None)),
    (2, 41): (("GET", "/os-aggregates", None),),
    (2, 43): (("GET", "/os-hosts", None),),
    (2, 50): (
        ("GET", "/os-quota-class-sets/default", None),
        ("PUT", "/os-quota-class-sets/default", {"quota_class_set": {"floating_ips": 3}}),
    ),
    (2, 53): (
        ("GET", "/os-services?binary=nova-compute", None),
        ("PUT", "/os-services/disable", {"host": "host1", "binary": "nova-compute"}),
        ("GET", "/os-hypervisors", None),
        ("GET", "/os-hypervisors/host1/search", None),
        ("GET", "/os-hypervisors?hypervisor_hostname_pattern=host1", None),
    ),
    (2, 55): (
        ("GET", "/flavors", None),
        ("POST", "/flavors", {"flavor": {**FLAVOR, "description": "new"}}),
        ("PUT", "/flavors/1", {"flavor": {"description": "changed"}}),
    ),
    (2, 57): (("GET", "/limits", None), ("GET", f"/os-quota-sets/{PROJECT}/detail", None)),
    (2, 61): (("GET", "/flavors/1", None),),
    (2, 64): (
        ("GET", "/os-server-groups", None),
        ("POST", "/os-server-groups", {"server_group": {"name": "g", "policies": ["affinity"]}}),
        ("POST", "/os-server-groups", {"server_group": {"name": "g", "policy": "affinity"}}),
    ),
    (2, 75): (
        ("GET", "/flavors?wings=2", None),
        ("GET", "/flavors/1", None),
        ("GET", "/os-hypervisors?with_servers=true", None),
    ),
    (2, 81): (("POST", "/os-aggregates/1/images", {"cache": []}),),
    (2, 86): (("POST", "/flavors/1/os-extra_specs", {"extra_specs": {"hw:nonsense": "1"}}),),
    (2, 88): (("GET", "/os-hypervisors/detail", None), ("GET", "/os-hypervisors/statistics", None)),
    (2, 92): (
        ("POST", "/os-keypairs", {"keypair": {**KEY, "name": "a@b"}}),
        ("POST", "/os-keypairs", {"keypair": {"name": "made"}}),
    ),
    (2, 103): (
        ("GET", "/os-volumes_boot", None),
        ("POST", "/os-volumes_boot/17/action", {"lock": None}),
        ("GET", "/os-volumes_boot/17", None),
    ),
    (2, 102): (
        ("GET", "/flavors/1", None),
        ("GET", "/flavors?name=small", None),
        ("GET", "/flavors/1?wings=2", None),
        ("POST", "/flavors", {"flavor": {**FLAVOR, "rxtx_factor": 2.0}}),
    ),
}

PROVED_ELSEWHERE: dict[tuple[int, int], str] = {
    (2, 40): "tests/api/test_usage_and_extensions.py::test_usage",
    (2, 69): "tests/api/test_hosts.py::test_a_cell_that_does_not_answer",
}
"""Version → `file::test`."""
