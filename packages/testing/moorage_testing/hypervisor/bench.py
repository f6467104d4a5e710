"""`make bench-hypervisor`: what a boot of a real guest takes, and how much of that is ours.

A trial set of two hosts with real guests; the same guest is also started by `virsh` alone, on the same tap and with the same DHCP.
CPU is of whole processes, by `/proc`; QEMU's is the guest's own, and is not ours to save.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from moorage.main.local_cluster.cluster import TrialSet
from moorage_testing.api_user import PATIENCE_S, Person
from moorage_testing.bench.machine import cpu_s_of_tree
from moorage_testing.bench.table import BenchRow, Table, print_line
from moorage_testing.hypervisor.guests import (
    PINGS,
    act,
    allow_ping,
    answers_of,
    bridge_to,
    silence_s,
    until_logged,
    upload,
    upload_image,
    user_data,
)

HERE, OTHER = "host1", "host2"
BOOTS = 3
AT_ONCE = 6
DOMAINS = 50
TINY_MIB = 32
MIB = 1 << 20
SETTINGS = "\n[compute]\nhost_deadline_s = 600\n\n[quota]\ncores = -1\ninstances = -1\nram = -1\n"


class Bench:
    def __init__(self, trial: TrialSet, person: Person, image: str) -> None:
        self.trial, self.person, self.image = trial, person, image
        self.table = Table()
        assert trial.real is not None
        self.real = trial.real

    async def ask(self, name: str, host: str = HERE, **more: Any) -> str:
        body = {"imageRef": self.image, "flavorRef": "42", "availability_zone": f"nova:{host}"} | more
        return await self.person.boot(name, **body)

    async def address_of(self, server: str) -> str:
        return str((await self.person.settled(server))["addresses"]["private"][0]["addr"])

    async def answers(self, address: str, host: str = HERE) -> None:
        """Asked by the host itself, at most each 0.2 s. Raises AssertionError."""
        inside, ends = self.real.inside(host), time.monotonic() + PATIENCE_S
        while True:
            words = [*inside, "ping", "-c1", "-W0.2", *bridge_to(address, inside), address]
            asked = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.DEVNULL)
            if await asked.wait() == 0:
                return
            if time.monotonic() > ends:
                raise AssertionError(f"no answer of {address}")

    async def gone(self, *servers: str) -> None:
        for each in servers:
            await self.person.delete(each)
        for each in servers:
            await self.person.gone(each)

    def spent_s(self) -> dict[str, float]:
        """CPU seconds so far, by who spent them."""
        names = {"embedded": "services", "api-1": "API", "conductor-1": "conductor", f"agent-{HERE}": "agent"}
        spent = {label: cpu_s_of_tree(self.trial.processes[name].pid) for name, label in names.items()}
        spent["libvirtd"] = cpu_s_of_tree(int((self.real.daemons[HERE].run / "libvirtd.pid").read_text()))
        return spent

    async def boots(self) -> None:
        """One after the other: how long, and whose CPU; then each again by `virsh` alone."""
        self.table.title(f"One guest, {BOOTS} times, the median")
        ours: list[float] = []
        active: list[float] = []
        alone: list[float] = []
        spent: list[Mapping[str, float]] = []
        daemon_alone: list[float] = []
        await self.gone(await self._first())  # the image is in the host's cache, and its file in the page cache
        for number in range(BOOTS):
            before, began = self.spent_s(), time.monotonic()
            server = await self.ask(f"one-{number}")
            address = await self.address_of(server)
            active.append(time.monotonic() - began)
            after = self.spent_s()  # what comes later is the guest's own, and our processes' rest
            await self.answers(address)
            ours.append(time.monotonic() - began)
            spent.append({name: after[name] - before[name] for name in after})
            seconds, of_daemon = await self._by_virsh(server, address)
            alone.append(seconds)
            daemon_alone.append(of_daemon)
            await self.gone(server)
        self.table.add(BenchRow("POST to ACTIVE", median(active), "s"))
        self.table.add(BenchRow("POST to the first answered ping", median(ours), "s"))
        self.table.add(BenchRow("`virsh start` to the first answered ping", median(alone), "s"))
        self.table.add(BenchRow("what we add", median(ours) - median(alone), "s"))
        for name in spent[0]:
            self.table.add(BenchRow(f"CPU of a boot: {name}", 1000 * median([each[name] for each in spent]), "ms"))
        self.table.add(BenchRow("CPU of a start by `virsh` alone: libvirtd", 1000 * median(daemon_alone), "ms"))

    async def _first(self) -> str:
        server = await self.ask("first")
        await self.answers(await self.address_of(server))
        return server

    async def _by_virsh(self, server: str, address: str) -> tuple[float, float]:
        """The guest is destroyed and started by libvirt's own command; until it answers, and the daemon's CPU seconds."""
        daemon = self.real.daemons[HERE]
        virsh, name = ["virsh", "-q", "-c", daemon.uri], f"guest-{server}"
        await asyncio.to_thread(subprocess.run, [*virsh, "destroy", name], check=True)
        before, began = self.spent_s()["libvirtd"], time.monotonic()
        await asyncio.to_thread(subprocess.run, [*virsh, "start", name], check=True, stdout=subprocess.DEVNULL)
        spent = self.spent_s()["libvirtd"] - before
        await self.answers(address)
        return time.monotonic() - began, spent

    async def at_once(self) -> None:
        self.table.title(f"{AT_ONCE} guests at once, on two hosts")
        began = time.monotonic()
        hosts = [(HERE, OTHER)[number % 2] for number in range(AT_ONCE)]
        servers = await asyncio.gather(*(self.ask(f"six-{number}", host) for number, host in enumerate(hosts)))
        addresses = await asyncio.gather(*(self.address_of(each) for each in servers))
        self.table.add(BenchRow("all ACTIVE", time.monotonic() - began, "s"))
        await asyncio.gather(*(self.answers(address, host) for address, host in zip(addresses, hosts, strict=True)))
        self.table.add(BenchRow("all answer a ping", time.monotonic() - began, "s"))
        await self.gone(*servers)

    async def live(self) -> None:
        self.table.title("Live migration with a local disk, under a ping of another guest each 0.1 s")
        moves = await self.ask("moves")
        pings = user_data(PINGS.format(address=await self.address_of(moves)))
        stays = await self.ask("stays", OTHER, user_data=pings)
        await until_logged(self.person, moves, "GUEST: ready")
        await answers_of(self.person, stays, 10)
        for target in (OTHER, HERE):
            began = time.monotonic()
            await act(self.person, moves, "ACTIVE", **{"os-migrateLive": {"host": target, "block_migration": "auto"}})
            self.table.add(BenchRow(f"to {target}: asked to ACTIVE", time.monotonic() - began, "s"))
            self.table.add(BenchRow(f"to {target}: silent", silence_s(await answers_of(self.person, stays, 20)), "s"))
        await self.gone(moves, stays)

    async def many(self) -> None:
        """Guests with an empty disk, whose processors stand still: they only are there."""
        self.table.title(f"An agent with {DOMAINS} domains")
        agent = self.trial.processes[f"agent-{HERE}"].pid
        asked = {"flavor": {"name": "tiny", "ram": TINY_MIB, "vcpus": 1, "disk": 1, "id": "tiny"}}
        made = await self.person.compute("POST", "/flavors", asked)
        if not made.is_success:
            raise AssertionError(made.text)
        specs = {"extra_specs": {"resources:VCPU": "0"}}  # more of them than the host's processors would let in
        if not (free := await self.person.compute("POST", "/flavors/tiny/os-extra_specs", specs)).is_success:
            raise AssertionError(free.text)
        before = memory_mib(agent)
        empty = await upload_image(self.person, "empty", "raw", bytes(MIB))
        body: dict[str, Any] = {"imageRef": empty, "flavorRef": "tiny", "min_count": DOMAINS, "max_count": DOMAINS}
        began = time.monotonic()
        await self.ask("many", **body)
        servers: list[str] = []
        while len(servers) < DOMAINS:
            found = (await self.person.compute("GET", "/servers/detail", name="many")).json()["servers"]
            if any(each["status"] == "ERROR" for each in found) or time.monotonic() - began > 1200:
                raise AssertionError([each.get("fault") for each in found])
            servers = [str(each["id"]) for each in found if each["status"] == "ACTIVE"]
            await asyncio.sleep(1)
        self.table.add(BenchRow("all ACTIVE", time.monotonic() - began, "s"))
        self.table.add(BenchRow("memory of the agent without any", before, "MiB"))
        self.table.add(BenchRow(f"memory of the agent with {DOMAINS}", memory_mib(agent), "MiB"))
        spent, looked = cpu_s_of_tree(agent), time.monotonic()
        await asyncio.sleep(30)
        share = (cpu_s_of_tree(agent) - spent) / (time.monotonic() - looked)
        self.table.add(BenchRow(f"CPU of the agent at rest with {DOMAINS}", 1000 * share, "ms/s"))
        await self.gone(*servers)


def median(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def memory_mib(process: int) -> float:
    """What is its own and not shared."""
    for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("no Pss")


def load() -> str:
    return " ".join(f"{each:.1f}" for each in os.getloadavg())


async def measure(parts: Sequence[str], directory: Path) -> None:
    trial = TrialSet(directory, hosts=2, apis=1, conductors=1, cells=1, real_guests=True, settings=SETTINGS)
    await asyncio.to_thread(trial.start)
    try:
        async with Person(trial.config) as person:
            await allow_ping(person)
            bench = Bench(trial, person, await upload(person))
            print_line(f"{os.cpu_count()} processors, load average {load()}")
            for each in parts:
                await {"boots": bench.boots, "at_once": bench.at_once, "live": bench.live, "many": bench.many}[each]()
                print_line(f"  load average {load()}")
    finally:
        await asyncio.to_thread(trial.stop)


def main(argv: Sequence[str]) -> int:
    parts = ("boots", "at_once", "live", "many")
    parser = argparse.ArgumentParser(prog="make bench-hypervisor", description=__doc__)
    parser.add_argument("--only", choices=parts, action="append")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="moorage-bench-") as directory:
        asyncio.run(measure(arguments.only or parts, Path(directory)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
