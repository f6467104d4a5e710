"""The user of QEMU in a trial set with real guests."""

import os
import pwd
from pathlib import Path

import pytest

from moorage.drivers.libvirt.qemu_access import UNPRIVILEGED_FAULTS, QemuAccess
from moorage.drivers.libvirt.system_users import SystemUser
from moorage.main.local_cluster import qemu_user as module
from moorage.main.local_cluster.libvirt_daemon import qemu_conf
from moorage.main.local_cluster.qemu_user import check_way, let_in, qemu_user
from moorage.model.errors import Invalid

OTHER = SystemUser("another", 54_321, 54_321, "another")


def test_a_machine_without_the_user_is_refused_with_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMES", ("no-such-user",))
    with pytest.raises(Invalid, match="libvirt-daemon-system"):
        qemu_user()


def test_the_first_of_the_names_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "NAMES", ("no-such-user", "nobody"))
    assert (qemu_user().name, qemu_user().uid) == ("nobody", pwd.getpwnam("nobody").pw_uid)


def test_a_directory_that_the_user_cannot_reach_is_refused_by_its_name(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    for each in (tmp_path, *tmp_path.parents[:-2]):
        each.chmod(0o711)
    check_way(OTHER, closed)  # the set's own directory is opened by the set
    with pytest.raises(Invalid, match=f"another, which may not search {closed}: .*--directory"):
        check_way(OTHER, closed / "set")


def test_its_group_searches_and_reads_and_nobody_else(tmp_path: Path) -> None:
    own = SystemUser("own", 54_321, os.getegid(), "own")
    key = tmp_path / "key"
    key.touch(mode=0o600)
    let_in(own, [tmp_path], [key])
    assert (tmp_path.stat().st_mode & 0o777, key.stat().st_mode & 0o777) == (0o710, 0o640)


def test_qemu_is_told_its_user() -> None:
    theirs, roots = qemu_conf(OTHER), qemu_conf()
    assert 'user = "another"\ngroup = "another"\ndynamic_ownership = 1\n' in theirs
    assert 'user = "root"\ngroup = "root"\ndynamic_ownership = 0\n' in roots


@pytest.mark.parametrize(
    ("user", "says", "may"),
    [(None, "0", True), ((54_321, 54_321), "0", False), ((54_321, 54_321), "1", True), ((54_321, 54_321), None, True)],
)
def test_who_is_not_root_fetches_memory_only_where_the_kernel_allows_it(
    tmp_path: Path, user: tuple[int, int] | None, says: str | None, may: bool
) -> None:
    access = QemuAccess(tmp_path, tmp_path, "")
    access.user = user
    if says is not None:
        file = tmp_path / UNPRIVILEGED_FAULTS
        file.parent.mkdir(parents=True)
        file.write_text(f"{says}\n")
    assert access.may_fetch_memory(tmp_path) is may
