"""How fast guests may send and receive, and what is guaranteed to them: classes of htb on two devices that all of it passes.

    mif<8 characters of the host's owner>u    what guests send
    mif<…>d                                   what they receive

A tap hands its packets to the device (tc: clsact, mirred), which knows by the tap what class they are of and gives them back where they were.
One device for all taps, because a guarantee is a share of something: of `[libvirt] bandwidth_kbps`, which is the root class.  Taps without a rule
are in a class of their own as soon as something is guaranteed to another one; else they pass beside.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from moorage.drivers.libvirt.commands import run
from moorage.model.port_description import Rate

PREFIX = "mif"
MOST_KBPS = 34_000_000
"""tc counts bytes in a second with 32 bits."""
LEAST_KBPS = 100
"""What a class without a guarantee is sure of."""
SURE_MAX_S, BURST_LEAST_BYTES, BURST_MOST_BYTES = 60, 32_768, 32 * 1024 * 1024
QUEUE_LEAST_BYTES, QUEUE_MOST_BYTES = 256 * 1024, 16 * 1024 * 1024
QUEUE_S = 0.1
QUANTUM_BYTES = 15_140
ROOT, OTHERS = 1, 2
"""Minor numbers of classes; those of ports come after (described_ports.FIRST_NUMBER)."""
NO_RATE = Rate()
BEFORE = -1
"""In place of an index: redirected by an earlier agent."""
DIRECTIONS = {"egress": ("u", "ingress"), "ingress": ("d", "egress")}
"""Of a port → the end of the device's name, and where the tap hands it over."""

CLASS = re.compile(r"^class htb 1:([0-9a-f]+)", re.MULTILINE)
PREF = re.compile(r"^filter .*?\bpref (\d+)", re.MULTILINE)


class ShapedDevice(Protocol):
    """A network device."""

    @property
    def index(self) -> int: ...

    @property
    def alias(self) -> str: ...


@dataclass(frozen=True)
class ShapedTap:
    """One tap, and how fast; its number is that of its classes."""

    tap: str
    number: int
    egress: Rate = NO_RATE
    ingress: Rate = NO_RATE

    def rate(self, direction: str) -> Rate:
        return self.egress if direction == "egress" else self.ingress


class Bandwidth:
    """Of one host."""

    def __init__(self, owner: str, capacity_kbps: int, alias: str) -> None:
        """`alias`: what each device of ours says of itself."""
        self._names = {direction: f"{PREFIX}{owner[:8]}{end}" for direction, (end, _) in DIRECTIONS.items()}
        self._capacity_kbps = min(capacity_kbps, MOST_KBPS) or MOST_KBPS
        self._alias = alias
        self._written: dict[str, dict[int, str]] = {direction: {} for direction in DIRECTIONS}
        """Direction → class → its words, as they were written last."""
        self._redirected: dict[str, dict[str, int]] = {direction: {} for direction in DIRECTIONS}
        """Direction → tap → the index of the device that it was."""
        self._knows_taps = False
        """Whether the above is all that there is; an earlier agent may have redirected others."""

    async def keep(self, taps: Sequence[ShapedTap], links: Mapping[str, ShapedDevice]) -> list[str]:
        """`taps`: all of this host. What could not be done as it was asked, in words. Raises HostFailed."""
        troubles: list[str] = []
        try:
            if not self._knows_taps:
                await self._find_redirected(taps, links)
            for direction in DIRECTIONS:
                await self._keep(direction, taps, links, troubles)
        except BaseException:
            self._forget()
            raise
        return troubles

    def _forget(self) -> None:
        """What was written is not known any more: it is read anew."""
        for direction in DIRECTIONS:
            self._written[direction].clear()
            self._redirected[direction].clear()
        self._knows_taps = False

    async def _find_redirected(self, taps: Sequence[ShapedTap], links: Mapping[str, ShapedDevice]) -> None:
        """By whoever ran before: they are redirected anew or not at all."""
        for direction, (_, hook) in DIRECTIONS.items():
            if self._names[direction] not in links:
                continue
            for tap in (each.tap for each in taps if each.tap in links):
                if await _prefs(tap, hook):
                    self._redirected[direction][tap] = BEFORE
        self._knows_taps = True

    async def _keep(
        self, direction: str, taps: Sequence[ShapedTap], links: Mapping[str, ShapedDevice], troubles: list[str]
    ) -> None:
        device = self._names[direction]
        ruled = [each for each in taps if each.rate(direction) != NO_RATE]
        shared = any(each.rate(direction).guaranteed_kbps for each in ruled)
        passing = {each.tap: each for each in (taps if shared else ruled) if each.tap in links}
        is_shaped = device in links and links[device].alias == self._alias
        if not passing and not is_shaped:
            return
        if not is_shaped:
            self._written[direction].clear()
            self._redirected[direction].clear()
            await self._make(device)
        await self._release(direction, passing, links)
        if not passing:
            await run("ip", "link", "delete", "dev", device, code="vif_not_plugged")
            self._written[direction].clear()
            return
        troubles += self._unkept(direction, ruled)
        await self._classify(direction, {each.number: each for each in ruled if each.tap in links}, links)
        await self._redirect(direction, passing, links)

    def _unkept(self, direction: str, ruled: Sequence[ShapedTap]) -> list[str]:
        found = [
            f"{each.tap}: {direction} of more than {MOST_KBPS} kbit/s is not limited"
            for each in ruled
            if max(each.rate(direction).limit_kbps, each.rate(direction).guaranteed_kbps) > MOST_KBPS
        ]
        promised = sum(each.rate(direction).guaranteed_kbps for each in ruled)
        if promised > self._capacity_kbps:
            found.append(f"{promised} kbit/s are guaranteed for {direction}, of {self._capacity_kbps}")
        return found

    async def _make(self, device: str) -> None:
        await run("ip", "link", "add", "name", device, "txqueuelen", "1000", "type", "ifb", code="vif_not_plugged")
        await run("ip", "link", "set", "dev", device, "alias", self._alias, "up", code="vif_not_plugged")

    # ---- the device ------------------------------------------------------------------------------------------------

    async def _classify(
        self, direction: str, ruled: Mapping[int, ShapedTap], links: Mapping[str, ShapedDevice]
    ) -> None:
        device, written = self._names[direction], self._written[direction]
        classes, prefs = await _classes(device), await _prefs(device, "parent", "1:")
        lines: list[str] = []
        if ROOT not in classes:
            lines.append(f"qdisc replace dev {device} root handle 1: htb default {OTHERS}")
        wanted = {
            ROOT: self._terms(Rate(self._capacity_kbps, guaranteed_kbps=self._capacity_kbps)),
            OTHERS: self._terms(NO_RATE),
        }
        indexes: dict[int, int] = {}
        for number, tap in ruled.items():
            wanted[number] = f"{self._terms(tap.rate(direction))}"
            indexes[number] = links[tap.tap].index
        for number in sorted((classes | prefs) - wanted.keys() - {0}):
            lines += [f"filter del dev {device} parent 1: pref {number}"] if number in prefs else []
            lines += [f"class del dev {device} classid 1:{number:x}"] if number in classes else []
        for number, terms in wanted.items():
            if number in classes and written.get(number) == terms:
                continue
            parent = "1:" if number == ROOT else f"1:{ROOT:x}"
            lines.append(f"class replace dev {device} parent {parent} classid 1:{number:x} htb {terms}")
            if number != ROOT:
                limit = self._queue_bytes(ruled[number].rate(direction) if number in ruled else NO_RATE)
                lines.append(f"qdisc replace dev {device} parent 1:{number:x} handle {number:x}: bfifo limit {limit}")
        for number, tap in ruled.items():
            known = self._redirected[direction].get(tap.tap) == indexes[number]
            if number in prefs and known:
                continue
            if number in prefs:
                lines.append(f"filter del dev {device} parent 1: pref {number}")
            lines.append(
                f"filter add dev {device} parent 1: pref {number} protocol all u32 match u32 0 0 indev {tap.tap} flowid 1:{number:x}"
            )
        await _batch(lines)
        self._written[direction] = wanted

    def _terms(self, rate: Rate) -> str:
        ceil = min(rate.limit_kbps or self._capacity_kbps, self._capacity_kbps)
        sure = min(rate.guaranteed_kbps or LEAST_KBPS, ceil)
        burst = rate.burst_kbit * 125 or ceil * 125 // 100
        return (
            f"rate {sure}kbit ceil {ceil}kbit burst {_burst(sure * 125 // 100, sure)} cburst {_burst(burst, ceil)} "
            f"quantum {QUANTUM_BYTES}"
        )

    def _queue_bytes(self, rate: Rate) -> int:
        ceil = min(rate.limit_kbps or self._capacity_kbps, self._capacity_kbps)
        return max(QUEUE_LEAST_BYTES, min(int(ceil * 125 * QUEUE_S), QUEUE_MOST_BYTES))

    # ---- the taps --------------------------------------------------------------------------------------------------

    async def _release(
        self, direction: str, passing: Mapping[str, ShapedTap], links: Mapping[str, ShapedDevice]
    ) -> None:
        """Taps that are not to hand their packets over any more; one that went took its filters with it."""
        _, hook = DIRECTIONS[direction]
        for tap in [each for each in self._redirected[direction] if each not in passing]:
            index = self._redirected[direction].pop(tap)
            if tap in links and index in (BEFORE, links[tap].index):
                await self._stop_redirect(tap, hook)

    @staticmethod
    async def _stop_redirect(tap: str, hook: str) -> None:
        if await _prefs(tap, hook):
            await _batch([f"filter del dev {tap} {hook} pref 1"])

    async def _redirect(
        self, direction: str, passing: Mapping[str, ShapedTap], links: Mapping[str, ShapedDevice]
    ) -> None:
        device, (_, hook) = self._names[direction], DIRECTIONS[direction]
        for tap in passing:
            if self._redirected[direction].get(tap) == links[tap].index:
                continue
            lines: list[str] = []
            if "qdisc clsact " not in await _tc("qdisc", "show", "dev", tap):
                lines.append(f"qdisc add dev {tap} clsact")
            elif await _prefs(tap, hook):
                lines.append(f"filter del dev {tap} {hook} pref 1")
            to_device = f"action mirred egress redirect dev {device}"
            lines.append(f"filter add dev {tap} {hook} pref 1 protocol all u32 match u32 0 0 {to_device}")
            await _batch(lines)
            self._redirected[direction][tap] = links[tap].index


def _burst(wanted_bytes: int, kbps: int) -> int:
    """tc writes it as the time that it takes, with 32 bits."""
    most = max(kbps * 125 * SURE_MAX_S, BURST_LEAST_BYTES)
    return min(max(wanted_bytes, BURST_LEAST_BYTES), BURST_MOST_BYTES, most)


async def _classes(device: str) -> set[int]:
    """Minor numbers. tc has no JSON for all that it shows, so its lines are read."""
    return {int(each, 16) for each in CLASS.findall(await _tc("class", "show", "dev", device))}


async def _prefs(*where: str) -> set[int]:
    """Of the filters there."""
    return {int(each) for each in PREF.findall(await _tc("filter", "show", "dev", *where))}


async def _tc(*words: str) -> str:
    return await run("tc", *words, code="vif_not_plugged")


async def _batch(lines: Sequence[str]) -> None:
    if lines:
        await run("tc", "-batch", "-", given="".join(f"{each}\n" for each in lines), code="vif_not_plugged")
