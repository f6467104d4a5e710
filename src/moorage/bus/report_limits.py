"""Limits of a host's reports: numbers that fit into databases and caches, and texts and lists longer than any driver needs.

A message beyond these limits is an agent's fault, or malicious. It is ignored: if it were stored, later readers would fail.
"""

import math
import re
from collections.abc import Iterable

import msgspec

from moorage.bus.command_messages import Result
from moorage.bus.host_messages import AgentReturned, Heartbeat, HostReport
from moorage.model.guest import PhysicalFunction

TEXT_CHARACTERS_MAX = 255
NODE_CHARACTERS_MAX, CELL_CHARACTERS_MAX = 190, 64
ADDRESS_CHARACTERS_MAX, PCI_ID_CHARACTERS_MAX = 32, 8
LEVEL_MAX = 100
CLASSES_MAX, TRAITS_MAX, NETWORKS_MAX, FUNCTIONS_MAX = 200, 2_000, 1_000, 1_000
NOT_WIRED_MAX = 20
CPU_INFO_MAX_BYTES = 64 * 1024
AMOUNT_MAX = 2**31 - 1
RATIO_MAX = 3.40282e38
COUNT_MAX = 2**63 - 1
NAME = re.compile(r"[A-Z0-9_]{1,255}")


def refusal(message: HostReport | Heartbeat | AgentReturned | Result) -> str | None:
    """Say why a message is refused; None: it is within the limits."""
    texts = [message.host, message.cell]
    counts: list[int] = []
    match message:
        case HostReport():
            if why := _of_report(message):
                return why
            texts += [message.boot, message.host_id, message.version, message.address, *message.physical_networks]
            texts += [message.hypervisor_type, message.hypervisor_hostname, *message.not_wired]
            counts += [message.hypervisor_version, message.up_since, message.guests_in_all or 0]
        case Heartbeat():
            texts += [message.boot, message.digest, message.described]
            counts += [message.beat, message.guests]
        case AgentReturned():
            texts += [message.boot, message.agent]
        case Result():
            texts += [message.step, message.code]
            counts += [message.turn.operation_seq, message.turn.attempt, message.turn.phase]
    if any(len(text) > TEXT_CHARACTERS_MAX for text in texts):
        return f"a name in it has more than {TEXT_CHARACTERS_MAX} characters"
    return None if all(0 <= count <= COUNT_MAX for count in counts) else "a count in it is out of bounds"


def _of_report(report: HostReport) -> str | None:
    if not 0 <= report.level <= LEVEL_MAX:
        return f"it speaks of level {report.level}"
    lists: Iterable[tuple[str, int, int]] = (
        ("resource classes", len(report.inventory), CLASSES_MAX),
        ("traits", len(report.traits), TRAITS_MAX),
        ("physical networks", len(report.physical_networks), NETWORKS_MAX),
        ("physical functions", len(report.physical_functions), FUNCTIONS_MAX),
        ("ports that it does not wire", len(report.not_wired), NOT_WIRED_MAX),
    )
    for what, many, most in lists:
        if many > most:
            return f"it names {many} {what}, more than {most}"
    if any(NAME.fullmatch(name) is None for name in (*report.inventory, *report.traits)):
        return "a resource class or trait in it has no name of the usual form"
    for each in report.inventory.values():
        if not (0 <= each.total <= AMOUNT_MAX and 0 <= each.reserved <= AMOUNT_MAX):
            return "an amount in it is out of bounds"
        if not all(1 <= unit <= AMOUNT_MAX for unit in (each.min_unit, each.max_unit, each.step_size)):
            return "a unit in it is out of bounds"
        if not (math.isfinite(each.allocation_ratio) and 0 < each.allocation_ratio <= RATIO_MAX):
            return "an allocation ratio in it is out of bounds"
    node = report.hypervisor_hostname or report.host
    if len(node) > NODE_CHARACTERS_MAX or len(report.cell) > CELL_CHARACTERS_MAX:
        return "the name of its host or cell is too long"
    if any(_too_long(node, each) for each in report.physical_functions):
        return "a physical function in it is described at too great a length"
    if len(msgspec.json.encode(report.cpu_info)) > CPU_INFO_MAX_BYTES:
        return f"it says more than {CPU_INFO_MAX_BYTES} bytes of its processors"
    return None


def _too_long(node: str, function: PhysicalFunction) -> bool:
    """Whether a text is empty or too long for its column."""
    return (
        len(function.functions) > FUNCTIONS_MAX
        or any(len(each) > ADDRESS_CHARACTERS_MAX for each in (function.address, function.mac, *function.functions))
        or max(len(function.vendor_id), len(function.product_id)) > PCI_ID_CHARACTERS_MAX
        or max(len(function.physical_network), len(function.card_serial_number)) > TEXT_CHARACTERS_MAX
        or len(node) + len(function.interface) > NODE_CHARACTERS_MAX
    )
