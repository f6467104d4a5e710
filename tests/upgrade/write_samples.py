"""What the last release writes, for `tests/pure/test_stored_golden.py`: `PYTHONPATH=src .venv/bin/python tests/upgrade/write_samples.py`.

Run once for each release, when it has been made.  The release itself is started (`moorage up`), servers live through every kind
of operation, good and bad, and what stands in its databases then is the sample: asked, journals, ledgers, records of servers and hosts.
"""

import asyncio
import json
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from moorage_testing.api_user import Person
from moorage_testing.real_services.install import REPOSITORY
from moorage_testing.releases import installed, last_release
from moorage_testing.up_process import UpProcess

SAMPLES = REPOSITORY / "tests" / "golden" / "stored" / "samples"
OLD_AND_NEW_HOSTS = "[hosts]\nlevels = [1, 2, 3]\n\n"


async def live(up: UpProcess, fleet: str) -> None:
    """Boots of every kind of port, one that fails at its hosts, one that no host can take, and all that is done to a server."""
    up.start()
    async with Person(up.config) as admin:
        network = await admin.id_of("network", "private")
        port = (await admin.network("POST", "/ports", {"port": {"network_id": network}})).json()["port"]["id"]
        kinds: list[Any] = ["private", "routed", [{"port": port}, {"uuid": network, "tag": "second"}], "none"]
        user = {"user_data": "IyEvYmluL3NoCg==", "metadata": {"a": "b"}, "tags": ["blue"], "key_name": None}
        servers = [
            (await admin.active(f"{fleet}-{number}", networks=kind, **{k: v for k, v in user.items() if v}))["id"]
            for number, kind in enumerate(kinds)
        ]
        one = servers[0]
        wish = {"interfaceAttachment": {"net_id": await admin.id_of("network", "routed")}}
        for each in (one, servers[2]):
            reply = await admin.compute("POST", f"/servers/{each}/os-interface", wish)
            reply.raise_for_status()
            await admin.compute(
                "DELETE", f"/servers/{each}/os-interface/{reply.json()['interfaceAttachment']['port_id']}"
            )
        for word in ("os-stop", "os-start", "suspend", "resume", "pause", "unpause"):
            (await admin.compute("POST", f"/servers/{one}/action", {word: None})).raise_for_status()
            await admin.settled(one)
        (await admin.compute("POST", f"/servers/{one}/action", {"reboot": {"type": "HARD"}})).raise_for_status()
        await admin.settled(one)
        dials = sorted((up.config.data / "hosts").glob("*/"))
        for host in dials:
            (host / "dials.json").write_text('{"verbs": {"start_guest": {"fail_times": 1, "fail_when": "after"}}}')
        await admin.settled(await admin.boot("refused-once", networks="private"))
        await admin.settled(await admin.boot("too-large", flavor="m1.xlarge", hints={"different_host": servers}))
        for each in servers[1:3]:
            await admin.gone(each)
    up.end(signal.SIGTERM)


def rows(database: Path, query: str) -> Iterator[dict[str, Any]]:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        connection.row_factory = sqlite3.Row
        yield from (dict(row) for row in connection.execute(query))


def written(data: Path, fleet: str) -> dict[str, Any]:
    """Everything that is stored as JSON."""
    region = next(data.glob("region.db"))
    cells = sorted(data.glob("cell*.db"))
    operations = "SELECT saga, status, asked, journal, ledger FROM operations ORDER BY created_at, id"
    return {
        "fleet": fleet,
        "operations": list(rows(region, operations)),
        "servers": [
            row["doc"] for cell in cells for row in rows(cell, "SELECT doc FROM servers ORDER BY created_at, id")
        ],
        "hosts": [row["doc"] for cell in cells for row in rows(cell, "SELECT doc FROM hosts ORDER BY host")],
        "actions": [
            row["events"] for cell in cells for row in rows(cell, "SELECT events FROM actions ORDER BY started_at")
        ],
    }


def main() -> None:
    release = installed(last_release())
    found = []
    for fleet, more in (("new", ""), ("old and new", OLD_AND_NEW_HOSTS)):
        with tempfile.TemporaryDirectory(prefix="moorage-samples-") as room:
            up = UpProcess(Path(room), more)
            up.release = release
            asyncio.run(live(up, fleet.replace(" ", "-")))
            found.append(written(up.config.data, fleet))
    SAMPLES.mkdir(parents=True, exist_ok=True)
    file = SAMPLES / f"{release.release.version}.json"
    file.write_text(json.dumps(found, indent=1) + "\n")
    sys.stdout.write(f"{file}: {', '.join(str(len(each['operations'])) for each in found)} operations\n")


if __name__ == "__main__":
    main()
