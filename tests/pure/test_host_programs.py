"""Programs that a host runs: those that parse users' data have limits."""

import os
import stat
from pathlib import Path

import pytest

from moorage.drivers.libvirt.commands import UNTRUSTED_BYTES, run
from moorage.model.errors import HostFailed

SHOW = "#!/bin/sh\necho $(ulimit -v) $(ulimit -t) $(ulimit -c)\n"
SPIN = "#!/bin/sh\nwhile :; do :; done\n"


def program(tmp_path: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / name
    file.write_text(text)
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")


async def test_who_parses_users_data_has_limits_of_memory_and_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "qemu-img", SHOW, monkeypatch)
    memory_kib, work_s, core = (await run("qemu-img", "info", limit_s=29.5)).split()
    assert (int(memory_kib) * 1024, int(work_s), core) == (UNTRUSTED_BYTES, 30, "0")


async def test_others_have_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "mkswap", SHOW, monkeypatch)
    assert (await run("mkswap")).split()[:2] == ["unlimited", "unlimited"]


async def test_one_that_works_for_ever_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "qemu-img", SPIN, monkeypatch)
    with pytest.raises(HostFailed) as ended:
        await run("qemu-img", "info", limit_s=1.0, code="image_unusable")
    assert ended.value.code == "image_unusable"
