"""Image data: the format of each image, what is refused, and that no image makes the inspection open another file."""

import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from moorage.model.image_inspection import Inspected, Unsafe, check_upload, check_use, inspect
from moorage_testing import images
from moorage_testing.images import GIB, WHOLE, WICKED

RUNS = int(os.environ.get("MOORAGE_IMAGES", "3000"))
"""How many images are made up: `MOORAGE_IMAGES=100000` for a long run."""


def written(tmp_path: Path, data: bytes) -> Path:
    path = tmp_path / "image"
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", WHOLE)
def test_each_format_is_detected(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, WHOLE[name])
    size = {"raw": len(WHOLE[name]), "iso": 64 * 1024, "vmdk": 20480 * 512}.get(name, GIB)
    assert check_upload(path, name, "bare") == check_use(path, name) == Inspected(name, size)


@pytest.mark.parametrize("why", WICKED)
@pytest.mark.parametrize("container", ["bare", "ovf", "docker", "ami"])
def test_images_that_reference_other_files_are_refused_in_every_format(
    tmp_path: Path, why: str, container: str
) -> None:
    declared, data = WICKED[why]
    path = written(tmp_path, data)
    for each in dict.fromkeys((declared, "raw", "ami", "qcow2", "ploop")):
        with pytest.raises(Unsafe):
            check_upload(path, each, container)
        with pytest.raises(Unsafe):
            check_use(path, each)


@pytest.mark.parametrize(
    ("declared", "container", "data", "uploads", "boots"),
    [
        ("raw", "bare", images.gpt(), True, True),
        ("raw", "bare", images.iso(), True, False),
        ("iso", "bare", images.iso_and_gpt(), True, True),
        ("raw", "bare", images.qcow2(), False, False),
        ("qcow2", "bare", b"not at all", False, False),
        ("qcow2", "ovf", images.vmdk(), False, False),
        ("vmdk", "ova", b"an archive", True, False),
        ("ami", "ami", b"a file system", True, True),
        ("ami", "bare", b"a file system", True, True),
        ("ami", "bare", images.qcow2(), False, True),
        ("ploop", "bare", b"x", True, False),
        ("raw", "bare", b"", True, True),
        ("qcow2", "bare", images.qcow2()[:200], True, True),
        ("qcow2", "bare", images.qcow2(version=2), True, True),
        ("qcow2", "bare", images.qcow2(features=1), True, True),
        ("vhdx", "bare", images.vhdx()[: 200 * 1024], False, False),
        ("vmdk", "bare", b"KDMV" + bytes(600), False, False),
        ("raw", "bare", b"KDMV" + bytes(600), False, False),
    ],
)
def test_declared_formats(
    tmp_path: Path, declared: str, container: str, data: bytes, uploads: bool, boots: bool
) -> None:
    path = written(tmp_path, data)
    check: Callable[[], Inspected]
    for fits, check in (
        (uploads, lambda: check_upload(path, declared, container)),
        (boots, lambda: check_use(path, declared)),
    ):
        if fits:
            check()
        else:
            with pytest.raises(Unsafe):
                check()


def test_a_disk_whose_boot_record_is_none_is_refused(tmp_path: Path) -> None:
    image = bytearray(images.gpt())
    image[446] = 0x12
    path = written(tmp_path, bytes(image))
    with pytest.raises(Unsafe, match="mbr"):
        check_upload(path, "raw", "bare")
    with pytest.raises(Unsafe, match="mbr"):
        check_use(path, "raw")


def test_a_truncated_header_is_padded_with_zeroes(tmp_path: Path) -> None:
    """As whoever opens it reads it."""
    path = written(tmp_path, WICKED["a backing file"][1][:130])
    for declared in ("raw", "qcow2"):
        with pytest.raises(Unsafe):
            check_upload(path, declared, "bare")


def test_the_end_of_a_large_image_is_inspected(tmp_path: Path) -> None:
    path = written(tmp_path, WHOLE["qcow2"])
    os.truncate(path, 5 * GIB)
    assert check_upload(path, "qcow2", "bare").virtual_size == GIB
    raw = written(tmp_path, b"a disk")
    os.truncate(raw, 5 * GIB)
    assert check_use(raw, "raw").virtual_size == 5 * GIB


_opened: list[str] = []
_watching = threading.local()


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event in {"open", "os.listdir", "socket.connect", "subprocess.Popen"} and getattr(_watching, "on", False):
        _opened.append(str(arguments[0]))


@contextmanager
def all_that_is_opened() -> Iterator[list[str]]:
    """By this thread, through Python: files, connections, programs."""
    if not getattr(_watching, "hooked", False):
        sys.addaudithook(_note)
        _watching.hooked = True
    _opened.clear()
    _watching.on = True
    try:
        yield _opened
    finally:
        _watching.on = False


def test_any_image_is_either_accepted_or_refused_and_opens_no_other_file(tmp_path: Path) -> None:
    path, seed = tmp_path / "image", random.randrange(2**32)
    dice = random.Random(seed)
    inspect(written(tmp_path, WHOLE["raw"]))  # what is imported with the first one
    taken = 0
    with all_that_is_opened() as opened:
        for number in range(RUNS):
            declared, data = images.mutated(dice)
            _watching.on = False
            path.write_bytes(data)
            _watching.on = True
            for check in (
                lambda: check_upload(path, declared, "bare"),  # noqa: B023  called at once
                lambda: check_upload(path, declared, "ovf"),  # noqa: B023
                lambda: check_use(path, declared),  # noqa: B023
            ):
                try:
                    check()
                    taken += 1
                except Unsafe:
                    pass
                except Exception as failure:
                    raise AssertionError(f"seed {seed}, image {number}, {declared}: {failure!r}") from failure
            assert set(opened) <= {str(path)}, f"seed {seed}, image {number}: {opened}"
            opened.clear()
    assert 0 < taken < 3 * RUNS


@pytest.mark.parametrize("kind", ["aki", "ari"])
@pytest.mark.parametrize("container", ["aki", "ari", "bare"])
def test_a_linux_kernel_is_an_image(tmp_path: Path, kind: str, container: str) -> None:
    """Its first sector ends as a boot record does, and what stands before that is no table of partitions."""
    kernel = bytearray(os.urandom(3) * 22_000)
    kernel[446:510] = bytes(range(64))
    kernel[510:512] = b"\x55\xaa"
    path = written(tmp_path, bytes(kernel))
    assert check_upload(path, kind, container) == Inspected("raw", len(kernel))
    assert check_use(path, kind).format == "raw"
    for other in ("raw", "ami"):
        with pytest.raises(Unsafe, match="mbr"):
            check_use(path, other)


@pytest.mark.parametrize("why", WICKED)
def test_data_that_name_other_files_are_no_kernel(tmp_path: Path, why: str) -> None:
    path = written(tmp_path, WICKED[why][1])
    for kind in ("aki", "ari"):
        with pytest.raises(Unsafe):
            check_use(path, kind)
