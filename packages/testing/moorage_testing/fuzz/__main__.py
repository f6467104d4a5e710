"""`python -m moorage_testing.fuzz --requests 200000 --messages 100000 --seed 1 --seconds 3600`: 0 when nothing was found."""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

import nats

from moorage.main.hosts import planned_hosts
from moorage_testing.fuzz.cloud import FuzzedCloud, cloud, raise_file_limit
from moorage_testing.fuzz.random_values import FuzzDice
from moorage_testing.fuzz.run import Fuzz, RunFindings
from moorage_testing.fuzz.seeded import Seeded

SHOWN = 30
FILES = 4_096


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(prog="python -m moorage_testing.fuzz", description=__doc__)
    options.add_argument("--requests", type=int, default=200_000)
    options.add_argument("--messages", type=int, default=100_000)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--seconds", type=float, default=7_200.0, help="after which no more is sent")
    options.add_argument("--growth-mib", type=float, default=50.0, help="of memory, between the halves of what is sent")
    options.add_argument("--postgres", action="store_true", help="on PostgreSQL instead of SQLite")
    return options


async def fuzz(found: FuzzedCloud, asked: argparse.Namespace) -> RunFindings:
    client = await nats.connect(found.bus, allow_reconnect=True)
    hosts = [(str(plan.cell), plan.host) for plan in planned_hosts(found.config)]
    async with Seeded(found.config) as seeded:
        run = Fuzz(found, seeded, FuzzDice(asked.seed), client.publish, hosts)
        run.end_after(asked.seconds)
        for what, send, many in (
            ("requests", run.requests, asked.requests),
            ("messages", run.messages, asked.messages),
        ):
            began = time.monotonic()
            await send(many // 2)
            middle_mib = await run.memory_mib()
            await send(many - many // 2)
            end_mib = await run.memory_mib()
            run.found.growth_mib[what] = end_mib - middle_mib
            print(
                f"{many} {what}: {time.monotonic() - began:.0f} s, {middle_mib:.0f} MiB, then {end_mib:.0f} MiB",
                flush=True,
            )
        await run.still_boots()
    await client.close()
    run.found.breaks = found.breaks()
    return run.found


def main() -> int:
    asked = parser().parse_args()
    raise_file_limit(FILES)
    with (
        tempfile.TemporaryDirectory(prefix="moorage-fuzz-") as room,
        cloud(Path(room), postgres=asked.postgres) as running,
    ):
        found = asyncio.run(fuzz(running, asked))
    print(
        f"seed {asked.seed}: {found.requests} requests, {found.messages} messages{', ended early' if found.ended_early else ''}"
    )
    for status, count in sorted(found.statuses.items()):
        print(f"  {status:20} {count}")
    print(
        f"the loop stood still {found.stalls} times, {found.longest_stall_s:.1f} s at the most; slowest answer {found.slowest_s:.1f} s"
    )
    wrong = found.wrong(asked.growth_mib)
    for each in wrong[:SHOWN]:
        print(each)
    print(f"{len(wrong)} faults" if wrong else "nothing was found")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
