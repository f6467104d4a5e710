"""`moorage demo`: boots some servers over the public API, and prints the host of each and why it was chosen."""

import sys
import time
from typing import Any

from moorage.cli import cloud

PATIENCE_S = 60.0


def main(argv: list[str]) -> int:
    parser = cloud.options(
        "demo", "Boot some servers on a running cloud, and print the host of each and why it was chosen."
    )
    parser.add_argument("--servers", type=int, default=6, help="how many (default: 6)")
    parser.add_argument("--keep", action="store_true", help="leave them running")
    arguments = parser.parse_args(argv)
    connection = cloud.connect(arguments.os_cloud)
    compute = connection.compute
    image, flavor = (
        connection.image.find_image("tiny"),
        compute.find_flavor("m1.nano") or compute.find_flavor("m1.tiny"),
    )
    networks = [n for n in (connection.network.find_network(name) for name in ("private", "routed")) if n is not None]
    if image is None or flavor is None or not networks:
        print("moorage: the demo needs the image, flavors and networks that `moorage up` makes")
        return 2
    stamp = time.strftime("%H%M%S")
    began = time.monotonic()
    made: list[Any] = []
    try:
        for number in range(arguments.servers):
            wanted = [{"uuid": networks[number % len(networks)].id}]
            name = f"demo-{stamp}-{number + 1}"
            made.append(compute.create_server(name=name, image_id=image.id, flavor_id=flavor.id, networks=wanted))
    except cloud.refusals() as refused:
        print(f"moorage: {refused.details or refused}", file=sys.stderr)
    rows = [_row(connection, _settled(compute, server.id)) for server in made]
    print(f"{len(made)} servers in {time.monotonic() - began:.1f} s\n")
    print(cloud.table(rows, ["server", "status", "address", "host", "why"]))
    if not arguments.keep:
        for server in made:
            compute.delete_server(server.id)
    return 0 if len(made) == arguments.servers and all(row[1] == "ACTIVE" for row in rows) else 1


def _settled(compute: Any, server: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while (current := compute.get_server(server)).status == "BUILD" and time.monotonic() < deadline:
        time.sleep(0.1)
    return current


def _row(connection: Any, server: Any) -> list[str]:
    why = cloud.get(connection, f"/ext/servers/{server.id}/explain")["explain"]["summary"] or ""
    addresses = [each["addr"] for fixed in (server.addresses or {}).values() for each in fixed]
    return [
        server.name,
        server.status,
        ", ".join(addresses),
        server.compute_host or server.hypervisor_hostname or "-",
        why,
    ]
