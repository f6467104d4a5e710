"""The reconciler of port drift and guarantees: changed QoS policies are carried into records and claims."""

import dataclasses
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
from tests.helpers.drifted_ports import ImmediateDispatcher, changed, record, routed_port, small

from moorage.conductor.reconcilers.port_drift import PortDrift, PortDriftDone
from moorage.model.ids import ProviderId
from moorage.store.region import servers as region_servers
from moorage.store.region.placement import claim_statements
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_guarantees import BANDWIDTH, PACKETS
from moorage_testing.region_states import attached
from moorage_testing.saga_proof import PROVED_OPERATION

__all__ = ["small"]


async def test_a_grown_guarantee_is_released_completely_with_its_port(tmp_path: Path) -> None:
    """The policy was changed while the port was bound, and the network service claimed the rest itself."""
    small = await SmallRegion.open(tmp_path)
    await attached(small, "made", guarantees=True)
    await small.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))
    small.context = dataclasses.replace(small.context, dispatcher=cast("Any", ImmediateDispatcher(small)))
    guaranteed = (await record(small)).nics[-1].guarantees
    assert guaranteed
    provider, resource, amount = guaranteed[0]
    key = ProviderId(provider), resource
    before = (await small.region.read(lambda tx: claim_statements.held(tx, SERVER)))[key]
    truth = {ProviderId(provider): before + 7}
    await small.region.write(partial(small.engine.correct, consumer=SERVER, resource=resource, truth=truth))
    del small.network.ports[routed_port(small)]
    assert (await PortDrift(small.context).run()).mended == (SERVER,)
    after = await small.region.read(lambda tx: claim_statements.held(tx, SERVER))
    assert after.get(key, 0) == before - amount
    await small.close()


# ------------------------------------------------------------------------------------------------------ guarantees


@pytest.fixture
async def guaranteed(tmp_path: Path) -> AsyncIterator[SmallRegion]:
    """The same server, whose ports are guaranteed bandwidth and packets; nobody holds it."""
    region = await SmallRegion.open(tmp_path)
    await attached(region, "made", guarantees=True)
    await region.region.write(lambda tx: region_servers.release(tx, SERVER, PROVED_OPERATION))
    region.context = dataclasses.replace(region.context, dispatcher=cast("Any", ImmediateDispatcher(region)))
    yield region
    await region.close()


async def all_held(small: SmallRegion) -> dict[tuple[ProviderId, str], int]:
    return await small.region.read(lambda tx: claim_statements.held(tx, SERVER))


async def test_port_drift_of_guarantees_already_fine(guaranteed: SmallRegion) -> None:
    before = await guaranteed.held(), await record(guaranteed)
    assert await PortDrift(guaranteed.context).run() == PortDriftDone(looked_at=1)
    assert (await guaranteed.held(), await record(guaranteed)) == before


@pytest.mark.parametrize("resource", [BANDWIDTH, PACKETS])
@pytest.mark.parametrize("factor", [0, 2])
async def test_a_claim_of_guarantees_is_set_to_the_ports_requests(
    guaranteed: SmallRegion, resource: str, factor: int
) -> None:
    small, before = guaranteed, await all_held(guaranteed)
    wrong = {provider: factor * amount for (provider, name), amount in before.items() if name == resource}
    assert wrong
    wrong = {provider: amount for provider, amount in wrong.items() if amount}
    await small.region.write(partial(small.engine.correct, consumer=SERVER, resource=resource, truth=wrong))
    assert await all_held(small) != before
    assert await PortDrift(small.context).run() == PortDriftDone(1, (SERVER,))
    assert await all_held(small) == before
    assert await PortDrift(small.context).run() == PortDriftDone(1)
    assert await small.region.read(claim_statements.drift) == []


async def test_a_policy_that_was_changed_is_recorded_and_claimed(guaranteed: SmallRegion) -> None:
    small, before = guaranteed, await all_held(guaranteed)
    port = small.network.ports[routed_port(small)]
    assert port.resource_request is not None
    (bandwidth, packets) = port.resource_request["request_groups"]
    less = {**port.resource_request, "request_groups": [bandwidth | {"resources": {BANDWIDTH: 50}}, packets]}
    changed(small, resource_request=less)
    assert await PortDrift(small.context).run() == PortDriftDone(1, (SERVER,))
    after = await all_held(small)
    bridge = next(key for key in before if key[1] == BANDWIDTH)
    assert after == before | {bridge: before[bridge] - 200 + 50}
    assert (bridge[0], BANDWIDTH, 50) in (await record(small)).nics[-1].guarantees
    more = {**less, "request_groups": [bandwidth | {"resources": {BANDWIDTH: 5_000}}, packets]}
    changed(small, resource_request=more)
    assert await PortDrift(small.context).run() == PortDriftDone(1, (SERVER,))
    assert (await all_held(small))[bridge] == before[bridge] - 200 + 5_000, (
        "it is in use, though there is no more than 1,000"
    )
    changed(small, resource_request=None, profile={})
    assert await PortDrift(small.context).run() == PortDriftDone(1, (SERVER,))
    assert (await all_held(small))[bridge] == before[bridge] - 200
    assert (await record(small)).nics[-1].guarantees == ()
    assert await small.region.read(claim_statements.drift) == []


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_difference_that_cannot_be_corrected_is_logged_and_kept(
    guaranteed: SmallRegion, elsewhere: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The binding names nobody, or a provider of another host: nobody knows whose the claim should be."""
    small, before, recorded = guaranteed, await all_held(guaranteed), await record(guaranteed)
    port = small.network.ports[routed_port(small)]
    other = {key: provider.replace("host1", "host2") for key, provider in port.profile["allocation"].items()}
    changed(small, profile={"allocation": other} if elsewhere else {})
    assert await PortDrift(small.context).run() == PortDriftDone(1, (), (SERVER,))
    assert await all_held(small) == before
    assert ("is not below host host1" if elsewhere else "names no provider") in caplog.text
    assert (await record(small)).nics == recorded.nics
    changed(small, profile=port.profile)
    assert await PortDrift(small.context).run() == PortDriftDone(1)
    assert await all_held(small) == before
