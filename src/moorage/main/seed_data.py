"""The first data of a new cloud: flavors, one small image, one ordinary network and one routed network with two segments.

Each is made if none of its name exists.  This happens once: the file `seeded` in the data directory marks that it is done, so what
people delete does not come back.
"""

import time
from typing import TYPE_CHECKING

from moorage.main.config import Config
from moorage.model.flavor import Flavor
from moorage.model.ids import FlavorId
from moorage.sql import Database, Tx
from moorage.store.region import flavors

if TYPE_CHECKING:
    from moorage_embedded.image.app import ImageService
    from moorage_embedded.network.app import NetworkService

FLAVORS = (
    ("1", "m1.tiny", 1, 512, 1),
    ("2", "m1.small", 1, 2048, 20),
    ("3", "m1.medium", 2, 4096, 40),
    ("4", "m1.large", 4, 8192, 80),
    ("5", "m1.xlarge", 8, 16384, 160),
    ("42", "m1.nano", 1, 128, 1),
    ("84", "m1.micro", 1, 192, 1),
)
"""(id, name, VCPUs, RAM in MiB, root disk in GiB)."""

IMAGE_NAME = "tiny"
IMAGE_BYTES = b"Moorage's small image: simulated hosts do not look inside.\n".ljust(64 * 1024, b"\0")
NETWORK = "private"
ROUTED = "routed"
SEGMENTS = (("rack-a", "physnet1", 101, "10.21.0.0/24"), ("rack-b", "physnet2", 102, "10.22.0.0/24"))
SEGMENT_ADDRESSES = 4
"""Few on purpose: one can fill a segment and see that further servers go to the other."""


async def seed(
    config: Config, region: Database, image: "ImageService | None", network: "NetworkService | None", demo_project: str
) -> bool:
    """Make the first data in a new data directory; False: it was done before."""
    mark = config.data / "seeded"
    if mark.exists():
        return False
    await region.write(_flavors)
    if image is not None and config.agent.driver != "libvirt":  # a real guest boots nothing from it
        await image.seed_image(IMAGE_NAME, IMAGE_BYTES, disk_format="raw", container_format="bare", min_disk=1)
    if network is not None:
        await _networks(network, demo_project)
    config.data.mkdir(parents=True, exist_ok=True, mode=0o700)  # with real services it does not exist yet
    mark.write_text("flavors, image and networks were made once\n")
    return True


def _flavors(tx: Tx) -> None:
    known = {flavor.id for flavor in flavors.every(tx)}
    for key, name, vcpus, ram, disk in FLAVORS:
        if key not in known:
            flavors.add(
                tx,
                Flavor(
                    number=0,
                    id=FlavorId(key),
                    name=name,
                    vcpus=vcpus,
                    ram_mib=ram,
                    disk_gib=disk,
                    created_at=time.time_ns() // 1000,
                ),
            )


async def _networks(network: "NetworkService", project: str) -> None:
    private = await network.seed_network(NETWORK, project, shared=True)
    await network.seed_subnet("private-v4", private, "10.20.0.0/16")
    _, first_physnet, first_vlan, _ = SEGMENTS[0]
    routed = await network.seed_network(
        ROUTED,
        project,
        **{
            "provider:network_type": "vlan",
            "provider:physical_network": first_physnet,
            "provider:segmentation_id": first_vlan,
        },
    )
    for place, (name, physnet, vlan, cidr) in enumerate(SEGMENTS):
        if place == 0:
            segment = (await network.segments_of(routed))[0]
        else:
            segment = await network.seed_segment(
                name, routed, network_type="vlan", physical_network=physnet, segmentation_id=vlan
            )
        base = cidr.rsplit(".", 1)[0]
        await network.seed_subnet(
            f"{name}-v4",
            routed,
            cidr,
            segment_id=segment["id"],
            allocation_pools=[{"start": f"{base}.10", "end": f"{base}.{10 + SEGMENT_ADDRESSES - 1}"}],
        )
