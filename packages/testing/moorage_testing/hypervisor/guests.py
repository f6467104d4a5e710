"""What tests and measures with real guests share: the guest as an image, its console output, and how long it did not answer a ping."""

import asyncio
import base64
import itertools
import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from moorage.drivers.libvirt.devices import BRIDGE_PREFIX
from moorage_testing.api_user import PATIENCE_S, Person

PING_EVERY_S = 0.1
PINGS = f"""#!/bin/sh
( while :; do ping -i {PING_EVERY_S} {{address}} 2>&1 | sed -n 's/.*seq=\\([0-9]*\\) .*/GUEST: seq \\1/p' >/dev/console; sleep 1; done ) &
"""
_ANSWER = re.compile(r"GUEST: seq (\d+)")


def user_data(script: str) -> str:
    return base64.b64encode(script.encode()).decode()


async def upload(person: Person) -> str:
    """The guest of the tests, as an image of the cloud; its id."""
    data = await asyncio.to_thread((Path(os.environ["MOORAGE_TEST_GUEST"]) / "guest.qcow2").read_bytes)
    return await upload_image(person, "real", "qcow2", data)


async def upload_image(person: Person, name: str, disk_format: str, data: bytes) -> str:
    """A public image with these bytes; its id. Raises httpx.HTTPStatusError."""
    images = f"{person.config.api.image.url}/v2/images"
    asked = {"name": name, "disk_format": disk_format, "container_format": "bare", "visibility": "public"}
    made = await person.http.post(images, json=asked)
    made.raise_for_status()
    image = str(made.json()["id"])
    headers = {"Content-Type": "application/octet-stream"}
    (await person.http.put(f"{images}/{image}/file", content=data, headers=headers)).raise_for_status()
    return image


async def until_logged(person: Person, server: str, words: str, times: int = 1) -> str:
    """The console output, once it contains the text so often. Raises AssertionError."""
    ends = time.monotonic() + PATIENCE_S
    while True:
        reply = await person.compute("POST", f"/servers/{server}/action", {"os-getConsoleOutput": {}})
        if reply.is_success and (output := str(reply.json()["output"])).count(words) >= times:
            return output
        if time.monotonic() > ends:
            raise AssertionError(reply.text)
        await asyncio.sleep(0.3)


async def act(person: Person, server: str, becomes: str, **action: object) -> dict[str, Any]:
    """One action, and the server when it is over. Raises AssertionError when it is refused, or does not become so."""
    reply = await person.compute("POST", f"/servers/{server}/action", action)
    if not reply.is_success:
        raise AssertionError(reply.text)
    ends = time.monotonic() + PATIENCE_S
    while True:
        seen = await person.server(server)
        if seen is not None and seen["status"] == becomes and seen["OS-EXT-STS:task_state"] is None:
            return seen
        if seen is None or time.monotonic() > ends:
            raise AssertionError(seen)
        await asyncio.sleep(0.1)


async def allow_ping(person: Person) -> None:
    """A rule of the default group of the person's project; the guests that have the group follow at once. Raises AssertionError."""
    found = await person.network("GET", "/security-groups", name="default", project_id=person.project)
    group = found.json()["security_groups"][0]["id"]
    rule = {"security_group_id": group, "direction": "ingress", "protocol": "icmp"}
    made = await person.network("POST", "/security-group-rules", {"security_group_rule": rule})
    if made.status_code != 201:
        raise AssertionError(made.text)


FLOOD_EVERY_S = 0.02


def bridge_to(address: str, inside: Sequence[str] = ()) -> tuple[str, ...]:
    """Options of `ping` that send by the bridge of this machine which leads to the address; none where no bridge does.

    The machine's own routes know no guest.
    """
    links = subprocess.run((*inside, "ip", "-br", "link"), capture_output=True, text=True, check=True).stdout
    names = [line.split()[0] for line in links.splitlines()]
    for bridge in (each for each in names if each.startswith(BRIDGE_PREFIX)):
        ask = (*inside, "ip", "route", "get", address, "oif", bridge)
        if f"dev {bridge}" in subprocess.run(ask, capture_output=True, text=True, check=False).stdout:
            return ("-I", bridge)
    return ()


class Pinging:
    """A ping every 20 ms, from this machine, or from where `inside` lets a command run."""

    def __init__(self, address: str, inside: Sequence[str] = ()) -> None:
        words = (*inside, "ping", "-n", *bridge_to(address, inside), "-i", str(FLOOD_EVERY_S), address)
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)

    def end(self) -> tuple[int, list[int]]:
        """How many were answered, and the numbers of those that were not; those of the last second may still be on their way."""
        self._process.send_signal(signal.SIGINT)
        output, _ = self._process.communicate()
        answered = {int(each) for each in re.findall(r"icmp_seq=(\d+) ttl", output)}
        sent = re.search(r"(\d+) packets transmitted", output)
        late = (int(sent[1]) if sent else 0) - round(1 / FLOOD_EVERY_S)
        return len(answered), sorted(set(range(1, max(late, *answered, 0))) - answered)


def longest_loss_s(lost: list[int]) -> float:
    """Of what `Pinging.end` answers: the longest time in which nothing came back."""
    longest = run = 0
    for before, number in itertools.pairwise([-1, *lost]):
        run = run + 1 if number == before + 1 else 1
        longest = max(longest, run)
    return longest * FLOOD_EVERY_S


async def answers_of(person: Person, server: str, least: int) -> list[int]:
    """The numbers of the answers that a guest with `PINGS` has had, in their order, when there are so many more than at first."""
    first = len(_ANSWER.findall(await until_logged(person, server, "GUEST: seq")))
    return [int(each) for each in _ANSWER.findall(await until_logged(person, server, "GUEST: seq", first + least))]


def silence_s(answers: list[int]) -> float:
    """The longest time between two answers of one ping."""
    return max(after - before for before, after in itertools.pairwise(answers)) * PING_EVERY_S
