"""Malformed requests for the Placement API, as careless scripts, broken proxies or attackers send them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any

JSON = {"content-type": "application/json"}
DEEP = 20_000
BODIES: tuple[bytes, ...] = (
    b"", b"null", b'"x"', b"[]", b"{}", b"{", b"\xff\xfe", b'{"name":"\xff"}', b'{"name":"\\ud800"}', b'{"name":"a\\u0000b","uuid":"00000000-0000-0000-0000-000000000002"}',
    b'{"name":NaN}', b'{"name":1e400}', b'{"name":"x","name":5}', b'{"a":' * DEEP + b"1" + b"}" * DEEP, b"[" * DEEP,
)  # fmt: skip
KINDS = ("text/plain", "application/json; charset=utf-8", "", "garbage", "application/x-www-form-urlencoded")
VERSIONS = ("placement", "placement 1", "placement -1.1", "placement 1.x", "placement 1.5 extra", "placement 1.40", "placement LATEST",
            "placement 1.5;", "placement 99999999999999999999.1", "garbage", "compute 2.1, placement 1.5")  # fmt: skip
NUMBERS: tuple[Any, ...] = (None, True, -1, 0, 1.5, 2**31, 2**63, 10**30, 1e300, "1", [], {})
NAMES = ("%00", "%ff", "x" * 300, "a%0Ab", "CUSTOM_A%0Ab", "'%22;--", "CUSTOM_", "custom_a", "9" * 40)
QUERIES = (
    "", "resources", "resources=VCPU", "resources=VCPU:-1", "resources=VCPU:1.5", "resources=NOPE:1", "resources=VCPU:1&limit=0",
    "resources=VCPU:1&limit=99999999999999999999999", "resources=VCPU:1&bogus=1", "resources=VCPU:1&required=in:", "resources=%ff",
    "resources=VCPU:1&required=!in:COMPUTE_NODE", "resources=VCPU:1&member_of=in:x", "resources=VCPU:1&in_tree=x",
    "resources=VCPU:1&group_policy=x", "resources=VCPU:1&same_subtree=", "resources1=VCPU:1&same_subtree=1,2",
    "resources_%C3%A4=VCPU:1", "resources=VCPU:1&root_required=!", "resources=VCPU:1;limit=1", "%ff=1", "&", "=",
    "resources=VCPU:1&required=%00", "resources_A=VCPU:1&required_C=!HW_CPU_X86_AVX&same_subtree=_A,_C&group_policy=none",
)  # fmt: skip
PROVIDER, CONSUMER = "00000000-0000-0000-0000-000000000001", "00000000-0000-0000-0000-000000000009"
AT = f"/resource_providers/{PROVIDER}"
WRITES = (
    ("POST", "/resource_providers"), ("PUT", AT), ("PUT", f"{AT}/inventories"), ("POST", f"{AT}/inventories"), ("PUT", f"{AT}/traits"),
    ("PUT", f"{AT}/inventories/VCPU"), ("PUT", f"{AT}/aggregates"), ("PUT", f"/allocations/{CONSUMER}"), ("POST", "/allocations"),
    ("POST", "/reshaper"), ("POST", "/resource_classes"),
)  # fmt: skip
SLASHED = (
    "/resource_providers/",
    "/traits/",
    "/allocations/",
    "/resource_classes/",
    "/resource_providers//inventories",
    "/nothing",
)


@dataclass(frozen=True)
class Malformed:
    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def said(self) -> str:
        return f"{self.method} {self.path} {(self.body or b'')[:200]!r} {self.headers}"


def _amounts(value: Any) -> Iterator[Malformed]:
    """One number of each kind of body. The generation is never the provider's, so that nothing is changed by what is sound."""
    for name in ("total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio"):
        stock = {"total": 1, name: value}
        body = {"inventories": {"DISK_GB": stock}, "resource_provider_generation": 987}
        yield Malformed("PUT", f"{AT}/inventories", json.dumps(body).encode(), JSON)
    holding = {"allocations": {PROVIDER: {"resources": {"VCPU": value}}}, "project_id": "p", "user_id": "u",
               "consumer_generation": None, "consumer_type": "INSTANCE"}  # fmt: skip
    yield Malformed("PUT", f"/allocations/{CONSUMER}", json.dumps(holding).encode(), JSON)
    yield Malformed("POST", "/allocations", json.dumps({CONSUMER: holding}).encode(), JSON)
    yield Malformed(
        "PUT", f"/allocations/{CONSUMER}", json.dumps(holding | {"consumer_generation": value}).encode(), JSON
    )


def malformed() -> Iterator[Malformed]:
    """All of them, for a service with one provider (`PROVIDER`) of 8 VCPU."""
    for (method, path), body in product(WRITES, BODIES):
        yield Malformed(method, path, body, JSON)
    for (method, path), kind in product(WRITES[:3], KINDS):
        yield Malformed(method, path, b"{}", {"content-type": kind})
    for version, path in product(VERSIONS, ("/", "/resource_providers", "/nothing")):
        yield Malformed("GET", path, headers={"openstack-api-version": version})
    for method, path in product(("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"), SLASHED):
        yield Malformed(method, path)
    for name in NAMES:
        for path in (
            "/resource_providers/{}",
            "/resource_providers/{}/inventories",
            "/traits/{}",
            "/resource_classes/{}",
        ):
            yield Malformed("GET", path.format(name))
        for path in ("/traits/{}", "/resource_classes/{}", "/allocations/{}"):
            yield Malformed("PUT", path.format(name), b"{}", JSON)
    for query, path in product(
        QUERIES, ("/allocation_candidates?", "/resource_providers?", "/usages?project_id=p&", "/traits?")
    ):
        yield Malformed("GET", path + query)
    for value in NUMBERS:
        yield from _amounts(value)
    yield Malformed("PATCH", "/resource_providers")
    empty = json.dumps({"name": ""}).encode()
    yield Malformed("POST", "/resource_providers", empty, JSON)
