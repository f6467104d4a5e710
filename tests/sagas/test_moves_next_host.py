"""Where a move goes: addresses and segments of the new host, and the next host after a failure."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from tests.helpers.executed_moves import SOURCE, execute_saga

from moorage.bus.move_payloads import SendGuest
from moorage.bus.verbs import Verb
from moorage.model.errors import Conflict, HostFailed
from moorage.model.guest import PowerState
from moorage.model.ids import CellId, SegmentId
from moorage.model.network import SubnetFacts
from moorage.model.resources import IPV4_ADDRESS
from moorage.model.server import VmState
from moorage.operations.resize.confirm_resize import ConfirmResize
from moorage.operations.resize.revert_resize import RevertResize
from moorage.operations.steps import move_ports
from moorage.placement.inventory import SegmentReport
from moorage.saga import Unwound
from moorage_testing import region_fixture, region_network, region_states
from moorage_testing.region_evacuated import evacuating
from moorage_testing.region_fixture import SERVER, SmallRegion
from moorage_testing.region_moved import recorded, resizing, wired_apart
from moorage_testing.region_network import SUBNET
from moorage_testing.region_shelved import shelved, unshelving
from moorage_testing.saga_proof import PROVED_OPERATION


@pytest.fixture
async def small() -> AsyncIterator[SmallRegion]:
    region = await SmallRegion.open()
    yield region
    await region.close()


def addresses(small: SmallRegion) -> dict[str, list[str]]:
    """Of each port of the server, at the network service."""
    return {port.id: [each.address for each in port.fixed_ips] for port in small.network.ports.values()}


@pytest.mark.parametrize("across", [False, True])
async def test_addresses_without_a_segment_are_kept_on_a_network_with_segments(
    small: SmallRegion, monkeypatch: Any, across: bool
) -> None:
    """A network that is half-way to being routed: its ports are offered any segment, for the wires, and leave none."""
    flat = SubnetFacts(SUBNET, "10.0.0.0/24")
    before = msgspec.structs.replace(region_network.ROUTED_FACTS, subnets=(flat,), segments=())
    half = msgspec.structs.replace(region_network.ROUTED_FACTS, subnets=(flat, *region_network.ROUTED_FACTS.subnets))
    for module in (region_network, region_states):
        monkeypatch.setattr(module, "ROUTED_FACTS", before)
    asked = msgspec.structs.replace(await resizing(small, routed=True), across=across)
    had = addresses(small)
    monkeypatch.setattr(region_network, "ROUTED_FACTS", half)
    await execute_saga(small, "resize/1", asked)
    server = await recorded(small)
    assert server.moved is not None
    assert server.moved.readdressed == ()
    assert addresses(small) == had


@pytest.mark.parametrize("then", ["confirm_resize/1", "revert_resize/1"])
async def test_a_resize_on_the_same_host_uses_the_hosts_current_segment(small: SmallRegion, then: str) -> None:
    """The old one is held beside it, as for a move, and the port is never without any."""
    asked = await resizing(small, same_host=True, routed=True, across=True)
    own, other = region_network.SEGMENTS
    hosts = tuple(host for host, _ in region_fixture.ALL_HOSTS)
    for segment, wired in ((own, ()), (other, hosts)):
        report = SegmentReport(segment=SegmentId(segment), name=segment, total=100, hosts=wired)
        await small.engine.report_segments([report])
    had = addresses(small)
    await execute_saga(small, "resize/1", asked)
    server = await recorded(small)
    assert server.moved is not None
    (changed,) = server.moved.readdressed
    (old,), (new,) = ([each.address for each in some] for some in (changed.old, changed.new))
    assert (server.host, changed.new_segment) == (SOURCE, other)
    assert addresses(small)[changed.port] == [new, old]
    assert [each.address for nic in server.nics if nic.port == changed.port for each in nic.addresses] == [new]
    await small.hand_to(PROVED_OPERATION)
    kind = ConfirmResize if then == "confirm_resize/1" else RevertResize
    await execute_saga(small, then, kind(server, 4, "req-then", "user-1"))
    assert addresses(small) == (had | {changed.port: [new]} if then == "confirm_resize/1" else had)


@pytest.mark.parametrize("saga", ["evacuate/2", "unshelve/2"])
async def test_a_move_that_finds_room_on_its_own_segment_keeps_its_address(
    small: SmallRegion, monkeypatch: Any, saga: str
) -> None:
    """The host that failed was of another, and its address is nobody's any more."""
    if saga == "evacuate/2":
        asked: Any = await evacuating(small, routed=True, across=True)
    else:
        await shelved(small, offload=True, routed=True, across=True)
        asked = unshelving(across=True)
    had, start, failed = addresses(small), small.hosts.start_guest, list[str]()

    async def starting(to: Any, command_context: Any, guest: Any) -> Any:
        if failed:
            return await start(to, command_context, guest)
        failed.append(to.host)
        assert [each for each in addresses(small).values() if len(each) == 2], "the old one is held beside the new one"
        await wired_apart(small, "host1", "host3", "host4")
        raise HostFailed("the host failed", code="guest_failed")

    monkeypatch.setattr(small.hosts, "start_guest", starting)
    await execute_saga(small, saga, asked)
    server = await recorded(small)
    assert (server.vm_state, server.host not in {*failed, None}) == (VmState.ACTIVE, True)
    assert addresses(small) == had
    held = await small.held()
    own, _ = region_network.SEGMENTS
    assert (held["claimed"], held["shown"]) == ([(own, IPV4_ADDRESS, 1)], held["addresses"])


@pytest.mark.parametrize("verb", ["send", "take", "start"])
@pytest.mark.parametrize("volumes", [False, True])
async def test_when_a_new_host_fails_the_next_one_is_tried(
    small: SmallRegion, monkeypatch: Any, verb: str, volumes: bool
) -> None:
    """After everything of the first is taken back: its guest, its bindings, the exports, and what was claimed there."""
    asked = await resizing(small, volumes=volumes)
    tell_host, start, failed = small.hosts.change_guest, small.hosts.start_guest, list[str]()

    def fails(kind: str, host: str) -> None:
        if kind == verb and not failed:
            failed.append(host)
            raise HostFailed("the host failed", code="host_unreachable" if kind == "send" else "guest_failed")

    async def executing(to: Any, command_context: Any, server: Any, what: Verb, payload: Any) -> Any:
        answer = await tell_host(to, command_context, server, what, payload)
        kind = {"SendGuest": "send", "TakeGuest": "take"}.get(type(payload).__name__, "")
        fails(kind, payload.to.where if isinstance(payload, SendGuest) else to.host)
        return answer

    async def starting(to: Any, command_context: Any, guest: Any) -> Any:
        answer = await start(to, command_context, guest)
        fails("start", to.host)
        return answer

    monkeypatch.setattr(small.hosts, "change_guest", executing)
    monkeypatch.setattr(small.hosts, "start_guest", starting)
    await execute_saga(small, "resize/1", asked)
    server = await recorded(small)
    assert server.host is not None
    assert server.vm_state is VmState.RESIZED
    assert len({SOURCE, server.host, *failed}) == 3
    assert small.hosts.guests == {(SOURCE, SERVER): PowerState.SHUTDOWN, (server.host, SERVER): PowerState.RUNNING}
    assert small.hosts.sent == set()
    assert {each.host for each in small.network.ports.values() if each.device_id} == {server.host}
    assert {host for _, host in small.network.inactive} == {SOURCE}
    assert set(small.volumes.hosts.values()) == ({server.host} if volumes else set())


async def test_a_failure_of_the_old_host_is_not_retried_with_other_hosts(small: SmallRegion, monkeypatch: Any) -> None:
    asked = await resizing(small)
    tell_host, sent = small.hosts.change_guest, list[str]()

    async def executing(to: Any, command_context: Any, server: Any, what: Verb, payload: Any) -> Any:
        if isinstance(payload, SendGuest):
            sent.append(payload.to.where)
            raise HostFailed("its disk cannot be read", code="host_failed")
        return await tell_host(to, command_context, server, what, payload)

    monkeypatch.setattr(small.hosts, "change_guest", executing)
    with pytest.raises(Unwound, match="its disk cannot be read"):
        await execute_saga(small, "resize/1", asked)
    assert len(sent) == 1
    assert small.hosts.guests == {(SOURCE, SERVER): PowerState.RUNNING}


async def test_a_server_on_a_silent_host_is_not_moved(small: SmallRegion) -> None:
    with pytest.raises(Conflict, match="Service is unavailable at this time"):
        move_ports.refuse_silent(small.context, "no-such-host")
    move_ports.refuse_silent(small.context, SOURCE)
    assert small.context.placement.forced_down(CellId("cell1")) == set()
