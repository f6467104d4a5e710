"""`make image`: what it says where something is missing, and the disk that its scripts make of a directory."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "packages/testing/moorage_testing/hypervisor"
NEEDS, PAGE = SCRIPTS / "image_needs.sh", ROOT / "docs/operating/real-machines.md"
PARTITION = 2048 * 512
PROGRAMS = ("qemu-img", "grub-mkimage", "/sbin/sfdisk", "/sbin/mke2fs", "/sbin/debugfs")
GRUB = Path("/usr/lib/grub/i386-pc/boot.img")


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, capture_output=True, text=True, check=False, env=os.environ | environment)


def packages() -> list[str]:
    return run("/bin/bash", str(NEEDS), "--packages").stdout.split()


def test_what_is_missing_is_said_in_one_message_with_its_packages(tmp_path: Path) -> None:
    said = run("/bin/bash", str(NEEDS), PATH=str(tmp_path), GRUB_OF_BIOS=str(tmp_path / "none"))
    assert said.returncode == 2
    [line] = said.stderr.splitlines()
    for package in ("qemu-utils", "busybox-static", "cpio", "grub-common", "grub-pc-bin", "mtools", "binutils"):
        assert package in line


def test_the_page_names_all_packages() -> None:
    page = PAGE.read_text()
    assert len(packages()) > 5
    assert [each for each in packages() if each not in page] == []


def test_what_is_needed_is_asked_before_anything_is_made() -> None:
    lines = run("make", "-n", "image", "OUT=there", "-C", str(ROOT)).stdout.splitlines()
    steps = [Path(line.split()[0]).name for line in lines if ".sh" in line]
    assert steps == ["image_needs.sh", "build_guest.sh", "build_login_guest.sh"]
    assert [line.split()[1:] for line in lines if "/build_" in line] == [["there"], ["there"]]


@pytest.mark.parametrize("script", sorted(SCRIPTS.glob("*.sh")), ids=lambda each: each.name)
def test_each_script_can_be_parsed(script: Path) -> None:
    assert run("/bin/bash", "-n", str(script)).stderr == ""


@pytest.mark.skipif(
    not GRUB.exists() or not all(map(shutil.which, PROGRAMS)), reason="needs the packages that `make image` needs"
)
def test_a_directory_becomes_a_disk_that_boots(tmp_path: Path) -> None:
    tree, made, raw = tmp_path / "tree", tmp_path / "made.qcow2", tmp_path / "raw"
    (tree / "boot/grub").mkdir(parents=True)
    (tree / "boot/grub/grub.cfg").write_text("boot\n")
    (tmp_path / "work").mkdir()
    script = f"set -eu; WORK={tmp_path}/work; . {SCRIPTS}/boot_disk.sh; boot_disk {tree} 12 small {made}"
    assert run("/bin/bash", "-c", script).stderr == ""
    assert run("qemu-img", "check", str(made)).returncode == 0
    assert run("qemu-img", "convert", "-O", "raw", str(made), str(raw)).returncode == 0
    with raw.open("rb") as disk:
        first = disk.read(512)
        assert (first[510:], first[446], first[450]) == (b"\x55\xaa", 0x80, 0x83), (
            "a partition of Linux, which is booted"
        )
        assert first[:440] == GRUB.read_bytes()[:440]
        assert disk.read(512) != bytes(512), "GRUB follows"
        disk.seek(PARTITION + 1024 + 120)
        assert disk.read(16).rstrip(b"\0") == b"small"
    shown = run("/sbin/debugfs", "-R", "cat /boot/grub/grub.cfg", f"{raw}?offset={PARTITION}")
    assert shown.stdout == "boot\n"
