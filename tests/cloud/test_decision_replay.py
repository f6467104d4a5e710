"""Decisions of a running cloud are recorded, named by `moorage explain`, and replayed with the same answer after the cloud was stopped (N11)."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from tests.cloud.conftest import Running, Start

from moorage.cli.explain import _describe
from moorage.main.config_scheduler import Scheduler
from moorage.main.schedule import main
from moorage_testing.api_user import Person


async def explained(person: Person, server: str) -> dict[str, Any]:
    found: dict[str, Any] = (await person.compute("GET", f"/ext/servers/{server}/explain")).json()["explain"]
    return found


def decisions_in(told: Any) -> list[str]:
    """Every decision that an explanation names."""
    if isinstance(told, dict):
        mine = [told["decision"]] if "decision" in told else []
        return mine + [each for value in told.values() for each in decisions_in(value)]
    return [each for value in told for each in decisions_in(value)] if isinstance(told, list) else []


def replayed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    status = main([*words, "--json"])
    return status, json.loads(capsys.readouterr().out)


async def lives(running: Running, hosts: dict[str, str]) -> list[str]:
    """Servers that are placed, moved, joined to a network, refused and deleted; the ids of what was decided."""
    admin = running.admin
    first, second = await admin.active("first"), await admin.active("second", networks="none")
    nowhere = await admin.boot(
        "nowhere", networks="none", hints={"same_host": [first["id"]], "different_host": [first["id"]]}
    )
    assert (await admin.settled(nowhere))["status"] == "ERROR"
    assert (await admin.compute("POST", f"/servers/{second['id']}/action", {"migrate": None})).status_code == 202
    await admin.settled(second["id"])
    decided = [
        each for server in (first["id"], second["id"], nowhere) for each in decisions_in(await explained(admin, server))
    ]
    for server in (first["id"], second["id"]):
        hosts[server] = str((await admin.server(server) or {})["OS-EXT-SRV-ATTR:host"])
    await admin.compute("POST", f"/servers/{second['id']}/action", {"confirmResize": None})
    await admin.settled(second["id"])
    await admin.gone(nowhere)
    return decided


async def test_decisions_outlive_their_process(
    start: Start, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hosts: dict[str, str] = {}
    async with start() as running:
        decided = await lives(running, hosts)
        assert len(decided) == len(set(decided)) == 4
        first = await explained(running.admin, next(iter(hosts)))
        assert f"decision {decided[0]}" in "\n".join(_describe(first))
        async with running.person("demo", "demo") as owner:
            server = (await owner.active("of-an-owner", networks="none"))["id"]
            assert not decisions_in(await explained(owner, server)), "who is not an administrator is told no decision"
            [more] = decisions_in(await explained(running.admin, server))
            await owner.gone(server)
    data = tmp_path / "data"
    async with start() as running:
        for server in hosts:
            await running.admin.gone(server)
        third = await running.admin.active("third", networks="none")
        decided += [more, *decisions_in(await explained(running.admin, third["id"]))]
        await running.admin.gone(third["id"])
    directory = data / "decisions"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(each.stat().st_mode) for each in directory.iterdir()} == {0o600}
    assert len({each.partition("-")[0] for each in decided}) == 2, "two lives of the process"

    status, report = replayed(capsys, "--replay", "all", "--data-dir", str(data))
    assert (status, report["same"], report["problems"], report["lost"]) == (0, report["decisions"], [], 0)
    assert report["decisions"] >= len(decided)
    for each in decided:
        status, one = replayed(capsys, "--replay", each, "--decisions", str(data))
        assert (status, one["decision"], one["same"]) == (0, each, True)
        if one["consumer"] == next(iter(hosts)):
            assert one["verdict"]["best"][0]["name"] == hosts[one["consumer"]]

    assert main(["--replay", decided[0], "--data-dir", str(data)]) == 0
    assert "the same answer as then" in capsys.readouterr().out
    weights, plot = tmp_path / "other.toml", tmp_path / "plot.svg"
    weights.write_text("[scheduler]\nram_weight_multiplier = -1.0\n")
    words = ["--weights", str(weights), "--data-dir", str(data)]
    status, shadow = replayed(capsys, *words, "--plot", str(plot))
    assert status == 0
    assert shadow["decisions"] == report["decisions"]
    assert shadow["placed"][0] == shadow["placed"][1] >= 5
    assert plot.read_text().startswith("<svg")
    world, ask = tmp_path / "world.json", tmp_path / "ask.json"
    assert main(["--replay", decided[0], "--data-dir", str(data), "--export", str(world), "--ask", str(ask)]) == 0
    capsys.readouterr()
    assert main(["--world", str(world), "--ask", str(ask)]) == 0, "and it can be changed by hand, and asked again"


async def test_without_the_setting_no_decision_is_recorded(start: Start, tmp_path: Path) -> None:
    async with start(scheduler=Scheduler(decisions_bytes_max=0)) as running:
        server = (await running.admin.active("plain", networks="none"))["id"]
        assert not decisions_in(await explained(running.admin, server))
        await running.admin.gone(server)
    assert not (tmp_path / "data" / "decisions").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--replay", "0123456789ab-1-2"], "there are no decisions in"),
        (["--replay", "all", "--decisions", "."], "0 of 0"),
        (["--replay", "x", "--decisions", "."], "is no decision"),
        (["--replay", "0123456789ab-1-2", "--decisions", "."], "is in none of"),
        (["--replay", "0123456789ab-1-2", "--decisions", ".", "--plot", "p.svg"], "--plot draws"),
        (["--weights", "absent.toml", "--decisions", "."], "there is no configuration file"),
        (["--weights", "w.toml", "--decisions", "."], "no decision was recorded in that time"),
    ],
)
def test_invalid_arguments_are_refused_with_the_reason(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "w.toml").write_text("")
    status = main([*words, *([] if "--decisions" in words else ["--data-dir", str(tmp_path)])])
    printed = capsys.readouterr()
    assert says in printed.out + printed.err
    assert status == (0 if "0 of 0" in says else 2)
