"""Invalid options are refused with one message, before anything is started."""

from pathlib import Path

import pytest

from moorage.bus.notifications import OsloSender
from moorage.main.config import Listen
from moorage.main.data_dir_lock import DataLock
from moorage.main.http_servers import HttpServer
from moorage.main.up import main
from moorage.model.errors import Invalid
from moorage.sql import open_database

MACHINE = '[[fence.machines]]\nhost = "{}"\nurl = "{}"\n'


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--hosts", "-1"], "-1 simulated hosts: from 0 to"),
        (["--cells", "0"], "0 cells: from 1 to"),
        (["--port-shift", "70000"], "78774 is no port for the compute service"),
        (["--config", "/nowhere.toml"], "there is no configuration file /nowhere.toml"),
        (["--config", "/"], "the configuration file / cannot be read: Is a directory"),
    ],
)
def test_invalid_options_are_refused(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*options, "--data-dir", "/nowhere/to/be/written"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("moorage: ")
    assert said in err
    assert err.count("\n") == 1


def test_a_file_is_checked_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text, said in (
        ("[hosts]\ncount = -3", "-3 simulated hosts"),
        ("[api]\nsheep = 1", "unknown field `sheep`"),
        ('cells = [{name = "a"}, {name = "a"}]', "same name"),
        (MACHINE.format("a", "https://b") * 2, "names a host twice"),
        (MACHINE.format("a", "https://b/") + MACHINE.format("c", "https://B"), "two hosts the same machine"),
        (
            MACHINE.format("a", "https://b") + MACHINE.format("c", "https://b") + 'system = "/1"\n',
            "hosts one controller",
        ),
        (MACHINE.format("a", "http://b"), "begins with https://"),
    ):
        file = tmp_path / "moorage.toml"
        file.write_text(text)
        assert main(["--config", str(file)]) == 2
        assert said in capsys.readouterr().err


def test_a_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Invalid, match=r"state cannot be kept in .*: choose another directory"):
        DataLock(tmp_path / "file")


def test_a_foreign_address_is_not_reported_as_in_use() -> None:
    with pytest.raises(Invalid, match=r"cannot listen on 203\.0\.113\.1 port 9"):
        HttpServer("compute", Listen(host="203.0.113.1", port=9))


async def test_an_invalid_address_is_refused_without_repeating_it() -> None:
    """What stands before an unquoted slash of a password is taken for a port, and said in the library's refusal."""
    with pytest.raises(Invalid, match="the database URL of region cannot be read") as refused:
        await open_database("postgresql://moorage:sec@db:sec/region", name="region")
    with pytest.raises(Invalid, match="write / as %2F") as of_broker:
        OsloSender("rabbit://moorage:sec/ret@broker:5672/", exchange="nova")
    for each in (refused, of_broker):
        assert "sec" not in str(each.value)
        assert each.value.__cause__ is None
