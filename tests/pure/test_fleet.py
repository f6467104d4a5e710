"""Invented fleets: a file is read as written, errors are reported in one message; and the command that reads it."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from moorage.cli import capacity as command
from moorage.model.errors import Invalid
from moorage.model.fleet import read_fleet
from moorage.model.resident import Resident
from moorage.model.world import Ask, NicRequirement
from moorage.model.world_snapshot import WorldSnapshot, photo_of
from moorage.scheduler.capacity import answer, count
from moorage.scheduler.fleet_world import ask_for, build
from moorage.scheduler.profile import Profile

FLEET: dict[str, Any] = {
    "format": "moorage-fleet/1",
    "flavors": {"small": {"vcpus": 2, "ram_mib": 4096}},
    "networks": {
        "routed": {"segments": ["rack1", "rack2"]},
        "fast": {"physical_network": "p", "egress_kbps": 1_000_000},
    },
    "segments": {"rack1": {"addresses": 20, "used": 2}, "rack2": {"addresses": 100}},
    "groups": {"web": {"policy": "anti-affinity"}},
    "hosts": [
        {
            "name": f"r{rack}-{{}}",
            "count": 3,
            "vcpus": 32,
            "ram_mib": 65536,
            "aggregates": [f"rack{rack}"],
            "segments": [f"rack{rack}"],
            "zone": f"z{rack}",
            "uplinks": [{"name": "eth1", "physical_network": "p", "egress_kbps": 10_000_000}],
        }
        for rack in (1, 2)
    ],
    "servers": [
        {"name": "db-{}", "count": 2, "flavor": "small", "networks": ["routed", "fast"], "host": "r1-*"},
        {"name": "web", "count": 2, "flavor": "small", "networks": ["routed"], "group": "web"},
    ],
}


def written(tmp_path: Path, fleet: dict[str, Any]) -> str:
    path = tmp_path / "fleet.json"
    path.write_text(json.dumps(fleet))
    return str(path)


def test_a_fleet_file_is_read_as_written() -> None:
    fleet = read_fleet(json.dumps(FLEET).encode())
    built = build(fleet, Profile())
    assert len(built.residents) == 2 * 3 + 2
    assert len({each.host for each in built.residents if each.name.startswith("web")}) == 2
    result = answer(count(ask_for(fleet, "small", ["routed", "fast"]), built.world, Profile()))
    on_rack1 = sum("rack1" in each.segments for each in built.residents)
    assert not result.order_matters
    assert {each.segments[0]: each.free for each in result.segments} == {
        "rack1": 18 - on_rack1,
        "rack2": 100 - (8 - on_rack1),
    }
    assert result.fits == (18 - on_rack1) + 3 * 10
    assert result.binds == {"NET_BW_EGR_KILOBIT_PER_SEC": 3, "addresses": 3}


def test_the_command_answers_as_a_table_and_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, FLEET)
    asked = ["--world", path, "--flavor", "small", "--network", "routed", "--network", "fast,egress=5000000"]
    assert command.main(asked) == 0
    shown = capsys.readouterr().out
    assert "more fit" in shown
    assert "rack1" in shown
    assert command.main([*asked, "--json", "--hosts", "1"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["fits"] == 3 * 1 + 3 * 2  # rack1's have two guarantees of 1 Gbit/s each already
    assert (len(result["hosts"]), result["hosts_left_out"]) == (1, 5)
    assert command.main([*asked, "--without-aggregate", "rack1", "--without-aggregate", "rack2"]) == 1
    capsys.readouterr()
    assert command.main([*asked, "--json", "--add-host", "r1-1=2", "--without-uplink", "r2-1:eth1"]) == 0
    assert json.loads(capsys.readouterr().out)["fits"] == 3 * 1 + 2 * 2 + 2 * 2


def test_the_command_names_servers_without_another_host(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, FLEET)
    assert command.main(["--world", path, "--each", "host"]) == 0
    assert capsys.readouterr().out.count("yes") == 6
    assert command.main(["--world", path, "--fails", "aggregate=rack1"]) == 1
    assert "not wired to the network" in capsys.readouterr().out
    across = written(tmp_path, {**FLEET, "allow_move_across_segments": True, "servers": FLEET["servers"][:1]})
    assert command.main(["--world", across, "--fails", "aggregate=rack1", "--fails", "segment=rack1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(each["servers"], each["placed"]) for each in rows] == [(6, 6), (6, 6)]


def test_a_saved_world_can_be_queried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    built = build(read_fleet(json.dumps(FLEET).encode()), Profile())
    saved = msgspec.structs.replace(photo_of(built.world), residents=built.residents)
    path, ask = tmp_path / "world.json", tmp_path / "ask.json"
    path.write_bytes(msgspec.json.encode(saved))
    ask.write_bytes(msgspec.json.encode(Ask(resources={"VCPU": 2}, nics=(NicRequirement("n", ("rack2",)),))))  # type: ignore[arg-type]
    assert msgspec.json.decode(path.read_bytes(), type=WorldSnapshot).residents[0] == built.residents[0]
    assert isinstance(built.residents[0], Resident)
    assert command.main(["--world", str(path), "--ask", str(ask)]) == 0
    assert "more fit" in capsys.readouterr().out
    assert command.main(["--world", str(path), "--each", "host"]) == 0
    assert command.main(["--world", str(path), "--flavor", "small"]) == 2


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in FLEET.items() if key != name}


def changed(name: str, /, **changes: Any) -> dict[str, Any]:
    return {**FLEET, name: [{**FLEET[name][0], **changes}, *FLEET[name][1:]]}


@pytest.mark.parametrize(
    ("fleet", "sentence"),
    [
        (without("format"), "The fleet is not what it should be: Object missing required field `format`"),
        (without("segments"), r"Hosts r1-{}: there is no segment rack1 in the file\."),
        (without("flavors"), r"Servers db-{}: there is no flavor small in the file\."),
        (without("networks"), r"Servers db-{}: there is no network routed in the file\."),
        (without("groups"), r"Servers web: there is no group web in the file\."),
        (changed("hosts", name="r1"), r"Hosts r1: there are 3 of them, so the name needs {} for the number\."),
        (changed("hosts", name="r2-{}"), r"Two hosts are called r2-1\."),
        (changed("hosts", vcpus=-1), r"Expected `int` >= 0 - at `\$\.hosts\[0\]\.vcpus`"),
        (changed("hosts", cpus=1), r"Object contains unknown field `cpus` - at `\$\.hosts\[0\]`"),
        ({**FLEET, "segments": {**FLEET["segments"], "x": {"addresses": 1, "used": 2}}}, r"Segment x: 2 addresses are used"),
        ({**FLEET, "networks": {**FLEET["networks"], "y": {"egress_kbps": 1}}}, r"Network y: bandwidth is guaranteed on"),
        (changed("hosts", count=100_001), r"Expected `int` <= 100000"),
    ],
)  # fmt: skip
def test_invalid_fleets_are_refused_with_the_reason(fleet: dict[str, Any], sentence: str) -> None:
    with pytest.raises(Invalid, match=sentence):
        read_fleet(json.dumps(fleet).encode())


@pytest.mark.parametrize(
    ("servers", "sentence"),
    [
        ({"host": "x*"}, r"Servers db-{}: no host is called x\*\."),
        ({"count": 17, "networks": []}, r"Server db-17 fits not on host r1-1: .*not enough vCPUs"),
        ({"count": 11}, r"Server db-7 fits not on host r1-1: .*no free address|Server db-\d+ fits not on host"),
    ],
)
def test_servers_that_do_not_fit_are_named(servers: dict[str, Any], sentence: str) -> None:
    fleet = read_fleet(json.dumps(changed("servers", **servers)).encode())
    with pytest.raises(Invalid, match=sentence):
        build(fleet, Profile())


def test_the_command_refuses_in_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path, FLEET)
    for words, sentence in (
        (["--flavor", "large"], "There is no flavor large in the file."),
        ([], "Say which --flavor of the file."),
        (["--flavor", "small", "--network", "routed,speed=1"], "'speed=1' is not egress=KBPS"),
        (["--flavor", "small", "--add-host", "r1-1=many"], "'many' is no whole number"),
        (["--flavor", "small", "--without-host", "r9"], "There is no host r9."),
        (["--fails", "rack=1"], "'rack=1' is not KIND=NAME"),
    ):
        assert command.main(["--world", path, *words]) == 2
        assert sentence in capsys.readouterr().err
    assert command.main(["--world", str(tmp_path / "none.json"), "--flavor", "small"]) == 2
    (tmp_path / "other.json").write_text('{"format": "x"}')
    assert command.main(["--world", str(tmp_path / "other.json"), "--flavor", "small"]) == 2
    assert "this release reads" in capsys.readouterr().err
