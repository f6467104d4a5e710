"""The real Ceilometer reads Moorage's notifications: it makes events and samples by its own definitions."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from moorage_testing.real_services import scripts
from moorage_testing.real_services.install import REPOSITORY, install

pytestmark = [pytest.mark.real, pytest.mark.slow]

HERE = Path(__file__).parent
GOLDEN = REPOSITORY / "tests" / "golden" / "notifications"
PROGRAM = Path(scripts.__path__[0]) / "ceilometer_reads.py"
DEADLINE_S = 120
SERVER = "0d0c0b0a-0000-4000-8000-000000000001"
TRAITS = {
    "instance_id": SERVER,
    "service": "compute",
    "host": "host1",
    "memory_mb": 512,
    "vcpus": 1,
    "root_gb": 1,
    "ephemeral_gb": 2,
    "disk_gb": 3,
    "instance_type": "m1.tiny",
    "instance_flavor_id": "a22d5517",
    "os_distro": "org.debian",
}


@pytest.fixture(scope="module")
def ceilometer() -> Path:
    return install("ceilometer", HERE / "requirements-ceilometer.txt", HERE / "constraints-ceilometer.txt")


def golden_messages() -> list[dict[str, Any]]:
    """Every unversioned golden message."""
    every = [each for file in sorted(GOLDEN.glob("*.json")) for each in json.loads(file.read_text())]
    return [each["oslo.message"] for each in every if each["queue"].startswith("notifications.")]


def test_it_makes_events_and_samples_of_every_message(ceilometer: Path) -> None:
    messages = golden_messages()
    done = subprocess.run(
        [ceilometer, PROGRAM],
        input="".join(json.dumps(each) + "\n" for each in messages),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [each["message_id"] for each in answers] == [each["message_id"] for each in messages]
    for answer, message in zip(answers, messages, strict=True):
        assert answer["event_type"] == message["event_type"]
        traits = dict(answer["traits"])
        assert {**TRAITS, "service": traits["service"], "host": traits["host"]}.items() <= traits.items()
        counted = not message["event_type"].endswith(("create.start", "update"))
        assert bool(answer["samples"]) is counted
        assert answer["resources"] == ([SERVER] if counted else [])
    built = next(each for each in answers if each["event_type"].endswith("create.end"))
    assert TRAITS.items() <= built["traits"].items()
    assert built["samples"] == {
        "memory": 512,
        "vcpus": 1,
        "disk.root.size": 1,
        "disk.ephemeral.size": 2,
        "compute.instance.booting.time": 5.0,
    }
    assert built["traits"]["launched_at"] == "2026-10-29T10:00:00.123456"
