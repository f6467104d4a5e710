"""The settings of an agent's file, the warnings about other settings, and which bus settings count as secured."""

from pathlib import Path

import msgspec
import pytest

from moorage.bus.agent_rpc import AudibleHosts
from moorage.main.agent_role import not_a_hosts, simulated_machine
from moorage.main.composition import audible_hosts
from moorage.main.config import Config, read_config
from moorage.main.hosts import HostPlan
from moorage.main.local_cluster.files import agents_file, tables, write
from moorage.model.ids import CellId

DATABASE = "postgresql://moorage:secret@db.example/region"


def config(said: str) -> Config:
    return msgspec.toml.decode(said, type=Config)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (f'[region]\ndatabase = "{DATABASE}"', "the address of a database"),
        (f'[[cells]]\nname = "cell1"\ndatabase = "{DATABASE}"', "the address of a database"),
        ('[service_user]\npassword = "secret"', "the password of [service_user]"),
    ],
)
def test_settings_that_an_agent_does_not_use_are_reported(said: str, why: str) -> None:
    (line,) = not_a_hosts(config(said))
    assert why in line
    assert "secret" not in line
    if "service_user" in said:
        assert not_a_hosts(config(said + "\n[agent]\nlevel = 2")) == [], "it sees to ports itself"


def test_an_agents_file_has_all_its_settings(tmp_path: Path) -> None:
    whole = config(
        f'[region]\ndatabase = "{DATABASE}"\n[[cells]]\nname = "cell1"\ndatabase = "{DATABASE}"\n[service_user]\npassword = "s3"\n'
        '[image_user]\npassword = "i3"\n[compute]\nhost_silence_s = 12.5\n[api.identity]\nport = 5001\n'
    )
    plan = HostPlan("n1", CellId("cell1"), ("physnet1", "physnet2"))
    path = tmp_path / "agent.toml"
    write(path, agents_file(whole, plan, {"url": "tls://bus:4222", "nkey": "n1.nk", "tls": True}, 3))
    mine = read_config(path)
    assert not_a_hosts(mine) == []
    assert (mine.agent.host, mine.agent.cell, mine.agent.physical_networks) == ("n1", "cell1", ("physnet1", "physnet2"))
    assert (mine.compute.host_silence_s, mine.image_user.password) == (12.5, "i3")
    assert (mine.identity.url, mine.bus.has_credentials, mine.bus.earlier) == ("http://127.0.0.1:5001/v3", True, False)
    assert "secret" not in path.read_text()
    write(path, agents_file(whole, plan, {}, 2))
    assert read_config(path).service_user.password == "s3"


def test_tables_are_toml() -> None:
    body = {"": {"a": 'x"y'}, "b": {"c": ["d", "é"], "e": True, "f": 1.5}}
    assert msgspec.toml.decode(tables(body)) == {"a": 'x"y', "b": {"c": ["d", "é"], "e": True, "f": 1.5}}


def test_credentials_give_access_to_hosts_of_their_cells_only() -> None:
    open_bus, secured = config(""), config('[bus]\nurl = "nats://b"\nnkey = "k"')
    assert audible_hosts(open_bus) == AudibleHosts()
    assert audible_hosts(secured) == AudibleHosts((CellId("cell1"), CellId("cell2")), earlier=False)
    assert config('[bus]\nnkey = "k"\nrelease_0_1 = true').bus.earlier
    assert not config("[bus]\nrelease_0_1 = false").bus.earlier


def test_hosts_are_approved_automatically_in_one_process_only() -> None:
    assert config("").approves_hosts_itself
    assert not config('[bus]\nurl = "nats://b"').approves_hosts_itself
    assert config('[bus]\nurl = "nats://b"\n[compute]\napprove_hosts = "automatic"').approves_hosts_itself
    assert not config('[compute]\napprove_hosts = "operator"').approves_hosts_itself


@pytest.mark.parametrize(
    ("said", "functions"), [("", [8]), ("virtual_functions = 3", [3]), ("virtual_functions = 0", [])]
)
def test_the_interfaces_of_a_simulated_host_of_its_own(said: str, functions: list[int]) -> None:
    machine = simulated_machine(config(f'[agent]\nhost = "h1"\n{said}').agent)
    assert [len(each.functions) for each in machine.physical_functions] == functions
    addresses = [each for card in machine.physical_functions for each in card.functions]
    assert len(set(addresses)) == sum(functions)


@pytest.mark.parametrize("table", ["agent", "hosts"])
@pytest.mark.parametrize("many", [-1, 249])
def test_an_interface_has_as_many_functions_as_a_bus_has_places(table: str, many: int) -> None:
    with pytest.raises(msgspec.ValidationError, match="virtual_functions"):
        config(f"[{table}]\nvirtual_functions = {many}")
