"""A database that cannot be written is answered with 503, a reason and Retry-After, never with 500."""

import sqlite3
from pathlib import Path
from typing import cast

from moorage.sql.sqlite import SqliteDatabase
from moorage_testing.compute_app import compute_api


async def test_requests_to_a_full_region_database_are_answered_with_503(tmp_path: Path) -> None:
    async with compute_api(tmp_path) as client:
        region = client.context.region
        assert isinstance(region, SqliteDatabase)
        writer = cast("sqlite3.Connection", region._writing.connection.driver_connection)  # pyright: ignore[reportPrivateUsage]
        pages = writer.execute("PRAGMA page_count").fetchone()[0]
        writer.execute(f"PRAGMA max_page_count={pages}")
        flavor = {"ram": 1, "vcpus": 1, "disk": 1, "description": "x" * 60_000}
        for n in range(40):
            answer = await client.ask("POST", "/flavors", {"flavor": {**flavor, "name": f"f{n}"}}, at="2.55")
            if answer.status_code != 200:
                break
        assert answer.status_code == 503
        assert "region database is out of disk space" in answer.json()["serviceUnavailable"]["message"]
        assert answer.headers["Retry-After"] == "5"
        assert (await client.get("/flavors")).status_code == 200
