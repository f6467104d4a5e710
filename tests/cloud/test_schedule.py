"""`moorage schedule`: files written from a region's database, and a decision replayed from them."""

import asyncio
import json
from pathlib import Path

import msgspec
import pytest

from moorage.main.config import Config
from moorage.main.schedule import main, read_region, replay
from moorage.model.ids import ConductorId, OperationId
from moorage.model.operation import Accepted
from moorage.operations.boot.boot import Made, ask_of
from moorage.operations.registry import SAGAS
from moorage.saga import MemoryJournal, execute, first_lines
from moorage.saga.journal import encode_lines
from moorage.store.region import operations
from moorage_testing.region_fixture import SERVER, SmallRegion, a_boot, a_server

BOOT = OperationId("boot")


async def boot_one(directory: Path) -> set[str]:
    """A server, with its operation as the region keeps it; the hosts that would do for it now."""
    small = await SmallRegion.open(directory)
    await small.fresh(a_server(), BOOT)
    boot = SAGAS["boot/1"]
    paper = MemoryJournal(first_lines(boot), small.transact)
    await execute(boot, BOOT, a_boot(BOOT), small.context, paper)
    asked = msgspec.json.encode(a_boot(BOOT))
    journal = encode_lines(paper.written()).encode()
    row = Accepted(BOOT, "boot/1", SERVER, "p", "u", ConductorId("c"), asked, journal, head=paper.row.head)
    await small.region.write(lambda tx: operations.accept(tx, [row]))
    await small.engine.catch_up()
    ask = ask_of(a_boot(BOOT), a_boot(BOOT).networks, Made().ports, not_on=())
    best = {choice.name for choice in small.engine.rank(ask).best}
    await small.close()
    return best


async def test_an_exported_world_gives_the_regions_decision(tmp_path: Path) -> None:
    willing = await boot_one(tmp_path)
    photo, ask = await read_region(Config(data_dir=str(tmp_path)), SERVER)
    assert ask is not None
    assert [nic.name for nic in ask.nics] == ["net", "net"]
    assert {choice.name for choice in replay(photo, ask).best} == willing == {"host1", "host2", "host3"}
    used = [host for host in photo.hosts if host.amounts["VCPU"].free == host.amounts["VCPU"].capacity - 1]
    assert len(used) == 1


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asyncio.run(boot_one(tmp_path))
    world, ask = tmp_path / "world.json", tmp_path / "ask.json"
    words = ["--data-dir", str(tmp_path), "--export", str(world), "--ask", str(ask), "--ask-of", SERVER]
    assert main(words) == 0
    assert main(["--world", str(world), "--ask", str(ask)]) == 0
    assert "3 of 3 hosts would do" in capsys.readouterr().out
    ask.write_text(json.dumps({"resources": {"VCPU": 9}}))
    assert main(["--world", str(world), "--ask", str(ask)]) == 1
    assert "3 × not enough vCPUs — " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "give --world FILE"),
        (["--world", "no-such-file"], "there is no file no-such-file"),
        (["--export", "w", "--data-dir", "no-such-directory"], "there is no region in"),
    ],
)
def test_invalid_arguments_are_refused_with_a_hint(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert says in capsys.readouterr().err
