"""`GET /servers/{id}/topology` (2.78): the NUMA nodes that a server's guest has, as its flavor asks for them.

A server whose flavor and image ask for none has none, and Nova answers an empty list then.  Which nodes of the host carry them
nobody decides here, so `host_node` is not shown; what is pinned is nothing.
"""

from moorage.api.call import Call, Response
from moorage.api.compute.server_lookup import target_of, the_server
from moorage.api.routes import Params, Route
from moorage.model.json_types import JsonObject
from moorage.model.server import Server

RULE = "compute:server:topology:"
PAGE_KIB = {"small": 4, "large": 2048}
NODES_MAX = 1024
MARKS = ("numa_nodes", "mem_page_size", "cpu_policy")


async def topology(call: Call[None]) -> Response:
    server = await the_server(call, RULE + "index")
    return Response(200, topology_of(server, for_host=call.allows(RULE + "host:index", target_of(server))))


def topology_of(server: Server, *, for_host: bool) -> JsonObject:
    settings = {name: value for mark in MARKS if (value := _setting(server, name := mark))}
    if not settings or settings == {"cpu_policy": "shared"}:
        return {"nodes": [], "pagesize_kb": None}
    try:
        nodes = _nodes(server, min(max(1, int(settings.get("numa_nodes", "1"))), NODES_MAX))
    except ValueError:
        nodes = []  # a spec that was never a number asks for nothing
    if for_host:
        for node in nodes:
            node["cpu_pinning"] = {}
    page = settings.get("mem_page_size", "")
    return {"nodes": nodes, "pagesize_kb": int(page) if page.isdecimal() else PAGE_KIB.get(page)}


def _setting(server: Server, name: str) -> str:
    """By the flavor, else by the image."""
    return server.flavor.extra_specs.get(f"hw:{name}") or server.image_properties.get(f"hw_{name}", "")


def _nodes(server: Server, count: int) -> list[JsonObject]:
    """Processors and memory in equal parts, unless the flavor says which node has what."""
    flavor, nodes = server.flavor, []
    for node in range(count):
        cpus, memory = _setting(server, f"numa_cpus.{node}"), _setting(server, f"numa_mem.{node}")
        first, past = node * flavor.vcpus // count, (node + 1) * flavor.vcpus // count
        nodes.append(
            {
                "vcpu_set": _cpus(cpus, flavor.vcpus) if cpus else list(range(first, past)),
                "siblings": [],
                "memory_mb": int(memory) if memory else flavor.ram_mib // count,
            }
        )
    return nodes


def _cpus(text: str, most: int) -> list[int]:
    """`0-2,5,^1` as a list, of processors that the guest has."""
    chosen: set[int] = set()
    for part in text.split(","):
        first, _, last = part.strip().removeprefix("^").partition("-")
        numbers = set(range(int(first), min(int(last or first), most) + 1))
        chosen = chosen - numbers if part.strip().startswith("^") else chosen | numbers
    return sorted(each for each in chosen if 0 <= each < most)


ROUTES = (Route("GET", "/servers/{id}/topology", topology, params=Params()),)
