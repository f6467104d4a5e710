"""Ports that are plugged at the destination before the guest arrives: Neutron sends no event for them while their binding there is inactive."""

import dataclasses
import logging
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.helpers.live_migrations import SOURCE, execute_move

from moorage.model.errors import HostFailed
from moorage.model.network import Port
from moorage.model.server import VmState
from moorage.operations.context import SagaSettings
from moorage.operations.live_migrate import prepare_destination
from moorage.operations.live_migrate.live_migrate_input import LiveMigrate
from moorage.saga import Unwound
from moorage.store.region import inbox
from moorage.store.region.inbox import ExternalEvent
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_moved import live_migrating, recorded


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


async def migrating(small: SmallRegion, monkeypatch: pytest.MonkeyPatch, said: str = "") -> LiveMigrate:
    """Ports are plugged there by the way of a Linux bridge, and plugs are waited for; `said`: what the network says of them then."""
    asked, bind = await live_migrating(small), small.network.bind_inactive

    async def bound(*words: Any, **more: Any) -> tuple[Port, ...]:
        ports = await bind(*words, **more)
        if said:
            audit_notifications = [ExternalEvent(SERVER, "network-vif-plugged", each.id, said, 1) for each in ports]
            rows = [msgspec.structs.asdict(each) for each in audit_notifications]
            await small.region.write(lambda tx: tx.run(inbox.inbox.insert(), rows))
        return tuple(msgspec.structs.replace(each, vif_details={"ovs_hybrid_plug": True}) for each in ports)

    monkeypatch.setattr(small.network, "bind_inactive", bound)
    monkeypatch.setattr(prepare_destination, "PLUGGED_WITHIN_S", 0.05)
    small.context = dataclasses.replace(small.context, settings=SagaSettings(vif_plugging_timeout_s=300.0))
    return asked


async def test_silence_does_not_delay_the_migration(
    small: SmallRegion, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    await execute_move(small, await migrating(small, monkeypatch))
    moved = await recorded(small)
    assert (moved.host != SOURCE, moved.vm_state) == (True, VmState.ACTIVE)
    assert "nothing was said of ports that wait there" in caplog.text


async def test_a_failed_plug_ends_the_migration(small: SmallRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unwound) as unwound:
        await execute_move(small, await migrating(small, monkeypatch, "failed"))
    assert isinstance(unwound.value.cause, HostFailed)
    assert (await recorded(small)).host == SOURCE
