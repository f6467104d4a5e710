"""The steps of docs/operating/real-machines.md for beginners: `moorage up --driver libvirt`, an image, a server, its console in a browser."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.helpers.real_guests import answers

from moorage.main.clouds_yaml import ADMIN
from moorage_testing.browser import chromium, missing
from moorage_testing.hypervisor.leftovers import leftovers
from moorage_testing.waiting import PATIENCE_S

pytestmark = pytest.mark.hypervisor

HOST = "newcomer"
CONFIG = f"""
[agent]
host = "{HOST}"

[console]
novnc_directory = "{{novnc}}"
"""
LIT = """(() => {
  const canvas = [...document.querySelectorAll('canvas')].find(each => each.width > 300);
  if (!canvas) return false;
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let lit = 0;
  for (let at = 0; at < data.length; at += 4) if (data[at] + data[at + 1] + data[at + 2] > 150) lit++;
  return lit > 200;
})()"""
"""Whether the guest's screen is there, with text on it."""


class Newcomer:
    """A shell in a directory, with the cloud's credentials."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = os.environ | {"OS_CLOUD": ADMIN, "PATH": f"{sys.prefix}/bin:{os.environ['PATH']}"}

    def begins(self, words: list[str], log: Path) -> subprocess.Popen[bytes]:
        with log.open("wb") as out:
            return subprocess.Popen(words, cwd=self.directory, env=self.environment, stdout=out, stderr=out)

    async def types(self, words: str, **places: object) -> str:
        """`openstack …`; what it prints."""
        command = ["openstack", *(each.format(**places) for each in words.split())]
        ended = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, text=True, cwd=self.directory, env=self.environment
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    async def until_log(self, server: str, words: str) -> None:
        ends = time.monotonic() + PATIENCE_S
        while words not in (said := await self.types("console log show {server}", server=server)):
            assert time.monotonic() < ends, said


@pytest.mark.hypervisor_ci
async def test_a_server_and_its_console_in_a_browser(tmp_path: Path) -> None:
    guest = Path(os.environ["MOORAGE_TEST_GUEST"])
    newcomer, log = Newcomer(tmp_path), tmp_path / "up.log"
    config, data = tmp_path / "moorage.toml", tmp_path / "data"
    config.write_text(CONFIG.format(novnc=guest / "novnc"))
    words = ["moorage", "up", "--driver", "libvirt", "--data-dir", str(data), "--config", str(config)]
    up = newcomer.begins(words, log)
    try:
        ends = time.monotonic() + PATIENCE_S
        while "Moorage is up" not in log.read_text():
            assert up.poll() is None, log.read_text()
            assert time.monotonic() < ends
            await asyncio.sleep(0.1)
        image = guest / "guest.qcow2"
        await newcomer.types(
            "image create --disk-format qcow2 --container-format bare --file {image} real", image=image
        )
        await newcomer.types(
            "server create --image real --flavor m1.nano --network private --config-drive True --wait first"
        )
        await newcomer.types("security group rule create --protocol icmp default")
        shown = await newcomer.types("server show first -f value -c addresses")
        await answers(shown.partition("'private': ['")[2].partition("'")[0])
        await newcomer.until_log("first", "GUEST: ready first")
        url = await newcomer.types("console url show --novnc first -f value -c url")
        if not missing():
            await shows_its_screen(url, Path(os.environ.get("MOORAGE_SCREENSHOTS", str(tmp_path))) / "novnc.png")
        await newcomer.types("server delete --wait first")
        assert leftovers(data / "hosts" / HOST) == []
    finally:
        up.send_signal(signal.SIGINT)
        await asyncio.to_thread(up.wait, PATIENCE_S)


async def shows_its_screen(url: str, picture: Path) -> None:
    """In a browser, by noVNC; where there is no browser, the console is asked for and not looked at."""
    async with chromium() as browser:
        page = await browser.page()
        await page.screen(1000, 700)
        await page.go(url)
        await page.until(LIT)
        await page.screenshot(picture)
        assert [each for each in page.complaints if "favicon" not in each] == []
