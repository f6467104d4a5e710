"""The calls that each step of an operation would make, for a dry run: to services, hosts and our own databases."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from moorage.model.server import VmState
from moorage.operations.boot.boot_input import Boot
from moorage.operations.resize.resize_input import Resize
from moorage.operations.steps.guest_respawn import Cards
from moorage.operations.unshelve_input import Unshelve


class PlannedCall(msgspec.Struct, frozen=True):
    service: str
    """network, volume, image, placement, host, region or cell."""
    call: str
    times: int = 1


Made = Callable[[Any, Cards], tuple[PlannedCall, ...]]


def _always(service: str, call: str) -> Made:
    return lambda input, cards: (PlannedCall(service, call),)


def _each_port(call: str) -> Made:
    return lambda input, cards: (PlannedCall("network", call, len(cards.ports)),)


def _each_volume(*calls: str) -> Made:
    return lambda input, cards: tuple(PlannedCall("volume", each, _volumes(input)) for each in calls)


def _volumes(input: Any) -> int:
    server = input.server
    return len(server.volumes) or sum(each.destination == "volume" for each in server.block_devices)


def _nothing(input: Any, cards: Cards) -> tuple[PlannedCall, ...]:
    return ()


def _make_ports(input: Boot, cards: Cards) -> tuple[PlannedCall, ...]:
    ours = sum(nic.ours for nic in input.nics)
    return (
        PlannedCall("network", "GET /v2.0/ports/{port}", len(input.nics) - ours),
        PlannedCall("network", "POST /v2.0/ports", int(ours > 0)),
    )


def _on_if_it_was(input: Resize, cards: Cards) -> tuple[PlannedCall, ...]:
    return (PlannedCall("host", "power_on", int(input.server.vm_state is VmState.ACTIVE)),)


def _image(method: str) -> Made:
    def made(input: Unshelve, cards: Cards) -> tuple[PlannedCall, ...]:
        return (PlannedCall("image", method, int(input.image is not None)),)

    return made


CLAIM = _always("region", "claim compute, addresses and guarantees")
RECORD = _always("cell", "write the server's record")

_BOOT: Mapping[str, Made] = {
    "make_ports": _make_ports,
    "claim_host": CLAIM,
    "bind_ports": _each_port("PUT /v2.0/ports/{port}"),
    "record_server": RECORD,
    "start_guest": _always("host", "start_guest"),
    "await_vifs": _nothing,
    "announce": RECORD,
}
_CONNECT = _each_volume("PUT /attachments/{attachment}", "POST /attachments/{attachment}/action os-complete")
_EVACUATE: Mapping[str, Made] = {
    "begin_action": RECORD,
    "fence_source": _always("cell", "read whether the host is forced down"),
    "read_ports": _always("network", "GET /v2.0/ports"),
    "claim_host": CLAIM,
    "bind_ports": _each_port("PUT /v2.0/ports/{port}"),
    "connect_volumes": _each_volume("POST /attachments", "DELETE /attachments/{attachment}"),
    "record_destination": RECORD,
    "prove_fenced": RECORD,
    "start_guest": _always("host", "start_guest"),
    "await_vifs": _nothing,
    "record_evacuated": RECORD,
}
_UNSHELVE: Mapping[str, Made] = {
    "begin_action": RECORD,
    "check_image": _image("GET /v2/images/{image}"),
    "read_ports": _always("network", "GET /v2.0/ports"),
    "claim_host": CLAIM,
    "bind_ports": _each_port("PUT /v2.0/ports/{port}"),
    "connect_volumes": _CONNECT,
    "record_host": RECORD,
    "start_guest": _always("host", "start_guest"),
    "await_vifs": _nothing,
    "announce": RECORD,
    "delete_image": _image("DELETE /v2/images/{image}"),
}
_LIVE: Mapping[str, Made] = {
    "begin_action": RECORD,
    "read_ports": _always("network", "GET /v2.0/ports"),
    "check_source": _always("host", "live_source"),
    "claim_host": CLAIM,
    "check_destination": _always("host", "live_target"),
    "bind_destination": _each_port("POST /v2.0/ports/{port}/bindings"),
    "record_destination": RECORD,
    "export_volumes": _each_volume("POST /attachments"),
    "prepare_guest": _always("host", "prepare_live"),
    "await_vifs": _nothing,
    "switch_guest": _always("host", "send_live"),
    "activate_bindings": _each_port("PUT /v2.0/ports/{port}/bindings/{host}/activate"),
    "complete_volumes": _each_volume("POST /attachments/{attachment}/action os-complete"),
    "land_guest": _always("host", "land_live"),
    "record_moved": RECORD,
    "clear_source": _always("host", "destroy_guest"),
    "drop_source_volumes": _each_volume("DELETE /attachments/{attachment}"),
    "drop_source_bindings": _each_port("DELETE /v2.0/ports/{port}/bindings/{host}"),
    "release_source": _always("region", "release what the old host held"),
    "record_completed": RECORD,
}
_LEFT: Mapping[str, Made] = {"leave_addresses": _nothing, "release_addresses": _nothing}
"""Only a server that gets addresses of another segment has addresses to release."""

_LEAVING_ITS_CELL: Mapping[str, Made] = {
    "check_cells": _each_volume("GET /volumes/{volume}"),
    "open_cell": _always("cell", "leave a fence"),
    "begin_copy": _always("region", "write which record is hidden"),
    "seal_record": _always("cell", "seal the server's record"),
    "copy_record": _always("cell", "write the server's record"),
    "show_there": _always("region", "write which record is shown"),
    "remove_record": _always("cell", "remove the server's old record"),
    "forget_hidden": _always("region", "write that no record is hidden"),
}
"""A server that stays in its cell is not copied; its record is changed in place."""

_BOOT_WITH_VOLUMES = {"hold_volumes": _each_volume("POST /attachments"), **_BOOT, "connect_volumes": _CONNECT}

CALLS: Mapping[str, Mapping[str, Made]] = {
    "boot/1": _BOOT,
    "boot/2": _BOOT_WITH_VOLUMES,
    "boot/3": _BOOT,
    "boot/4": _BOOT_WITH_VOLUMES,
    "resize/1": {
        "begin_action": RECORD,
        "check_source": _always("host", "move_target"),
        "read_ports": _always("network", "GET /v2.0/ports"),
        "claim_host": CLAIM,
        "prepare_host": _always("host", "move_target"),
        "bind_destination": _each_port("POST /v2.0/ports/{port}/bindings"),
        "record_destination": RECORD,
        "send_guest": _always("host", "send_guest"),
        "switch_volumes": _each_volume("POST /attachments", "DELETE /attachments/{attachment}"),
        "activate_bindings": _each_port("PUT /v2.0/ports/{port}/bindings/{host}/activate"),
        "land_guest": _always("host", "land_guest"),
        "start_guest": _on_if_it_was,
        "await_vifs": _nothing,
        "record_resized": RECORD,
    },
    "evacuate/1": _EVACUATE,
    "evacuate/2": {**_EVACUATE, **_LEFT},
    "evacuate/3": {
        **{step: made for step, made in _EVACUATE.items() if step != "record_evacuated"},
        **_LEFT,
        **{step: made for step, made in _LEAVING_ITS_CELL.items() if step not in {"remove_record", "forget_hidden"}},
        "record_left": RECORD,
    },
    "live_migrate/1": _LIVE,
    "live_migrate/2": {**_LIVE, **_LEAVING_ITS_CELL},
    "unshelve/1": _UNSHELVE,
    "unshelve/2": {**_UNSHELVE, **_LEFT},
    "unshelve/3": {
        **{step: made for step, made in _UNSHELVE.items() if step != "announce"},
        **_LEFT,
        **_LEAVING_ITS_CELL,
        "announce_here": _nothing,
    },
}
"""Saga → step → its calls, in the terms of the services."""
