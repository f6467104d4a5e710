"""`moorage up` as a process of its own, on one directory, started, killed and started again."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from moorage.main.config import Config, read_config
from moorage.main.local_cluster.ports import free_ports
from moorage.model.private_files import private_file
from moorage_testing.logins import CHEAP_LOGINS_SETTINGS
from moorage_testing.releases import Installed

READY_S = 180.0
STOP_S = 90.0
SERVICES = ("identity", "image", "network", "volume", "compute", "placement")


class UpProcess:
    """`moorage up` on a directory, again and again."""

    def __init__(self, directory: Path, more: str = "", address: str = "127.0.0.1") -> None:
        """`more`: further tables of its configuration. `address`: where its services listen."""
        self.directory = directory
        self.log = directory / "up.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.metadata_port = 0
        """0: without a metadata service."""
        self.release: Installed | None = None
        """Which release the next start is of; None: ours."""
        ports = dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True))
        listens = "".join(f'[api.{name}]\nhost = "{address}"\nport = {port}\n\n' for name, port in ports.items())
        self.path = directory / "moorage.toml"
        private_file(self.path).write_text(
            f'data_dir = "{directory / "data"}"\n\n{listens}{CHEAP_LOGINS_SETTINGS}[region]\ndurability = "process"\n\n'
            f"[quota]\ninstances = -1\ncores = -1\nram = -1\n\n{more}"
        )

    @property
    def config(self) -> Config:
        return read_config(self.path)

    def start(self) -> None:
        """Returns when it says that it is up."""
        python, environment, path = sys.executable, None, self.path
        if self.release is not None:
            python, environment = str(self.release.python), self.release.environment
            path = self.release.configuration(path)
        without = ["--metadata-port", str(self.metadata_port), "--console-port", "0", "--webconsole-port", "0"]
        ours = [] if self.release is not None else without  # which earlier ones do not know
        with self.log.open("ab") as out:
            at = out.tell()
            self.process = subprocess.Popen(
                [python, "-m", "moorage", "up", "--config", str(path), *ours],
                stdout=out,
                stderr=out,
                stdin=subprocess.DEVNULL,
                cwd=self.directory,
                env=environment,
            )
        deadline = time.monotonic() + READY_S
        while b"Moorage is up" not in self.log.read_bytes()[at:]:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(self.log.read_text()[-3000:])
            time.sleep(0.02)

    def end(self, sign: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(sign)
        code = self.process.wait(STOP_S)
        self.process = None
        return code

    def give_up(self, host: str) -> None:
        """Kill it if it runs, and remove the real guests that a failed test has left: they would disturb the next one."""
        if self.process is not None:
            self.end(signal.SIGKILL)
        words = ["agent", "clean", "--config", str(self.path), "--host", host, "--yes"]
        subprocess.run([sys.executable, "-m", "moorage", *words], capture_output=True, check=False, cwd=self.directory)
