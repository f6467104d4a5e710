"""Plants what other hands leave at Placement's API, at the network service and at the volume service for servers that nobody knows."""

import msgspec

from moorage.model.ids import ProviderId
from moorage.model.network import Port
from moorage.model.volume import Attachment
from moorage.store.region.placement import claim_statements
from moorage.store.region.placement.claim_statements import Owner
from moorage_testing.region_fixture import PROJECT, SmallRegion
from moorage_testing.region_volumes import OTHER_VOLUME
from tests.helpers.leak_planting import plants, record, sum_up

UNKNOWN = "11111111-2222-4333-8444-555555555555"


@plants("allocation_owner_unknown")
async def _claimed_by_hand(small: SmallRegion) -> None:
    provider = ProviderId(str((await record(small)).provider))
    owner = Owner(UNKNOWN, PROJECT, "user-1")
    await small.region.write(lambda tx: claim_statements.write(tx, owner, {(provider, "VCPU"): 1}, 1))
    await sum_up(small)


@plants("port_owner_unknown")
async def _port_by_hand(small: SmallRegion) -> None:
    made = Port("by-hand", "network-1", "fa:16:3e:99:99:98", device_id=UNKNOWN, device_owner="compute:nova")
    small.network.ports["by-hand"] = made


@plants("attachment_owner_unknown")
async def _attached_by_hand(small: SmallRegion) -> None:
    small.volumes.attachments["by-hand"] = Attachment(
        id="by-hand", volume=OTHER_VOLUME, server=UNKNOWN, status="reserved"
    )
    small.volumes.volumes[OTHER_VOLUME] = msgspec.structs.replace(
        small.volumes.volumes[OTHER_VOLUME], status="reserved"
    )
