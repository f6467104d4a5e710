"""`moorage set`: the command line of a trial set (`cluster.py`)."""

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from moorage.main.clouds_yaml import ADMIN, write_clouds
from moorage.main.local_cluster import cluster
from moorage.main.local_cluster.cluster import TrialSet
from moorage.main.optional_packages import require_embedded
from moorage.main.service_clients import admin_password, demo_password
from moorage.model.errors import Invalid

USUAL = Path("moorage-set")
WITH_GUESTS = Path("/var/lib/moorage-set")
"""QEMU's user must be able to search all directories above."""


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="moorage set", description=cluster.__doc__)
    parser.add_argument(
        "--directory", type=Path, help=f"configuration, logs, hosts ({USUAL}; with real guests {WITH_GUESTS})"
    )
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument(
        "--driver", choices=("simulated", "libvirt"), default="simulated", help="libvirt: real guests, as root"
    )
    parser.add_argument("--port-shift", type=int, default=0, help="added to the usual ports (0: free ports are taken)")
    arguments = parser.parse_args(argv)
    real = arguments.driver == "libvirt"
    trial = TrialSet(
        (arguments.directory or (WITH_GUESTS if real else USUAL)).resolve(),
        hosts=arguments.hosts,
        port_shift=arguments.port_shift,
        real_guests=real,
        guests_ask=True,
    )
    for sign in (signal.SIGINT, signal.SIGTERM):  # also where a shell started us with SIGINT ignored
        signal.signal(sign, signal.default_int_handler)
    try:
        require_embedded()
        trial.start()
        config = trial.config
        path, _ = write_clouds(
            Path.cwd(),
            auth_url=f"{config.api.identity.url}/v3",
            region=config.region.name,
            admin_password=admin_password(config),
            demo_password=demo_password(config),
        )
        sys.stdout.write(
            f"\n{len(trial.processes)} processes, PostgreSQL and NATS are up; logs in {trial.directory}\n"
            f"compute API: {', '.join(trial.api_urls())}\nplacement API: {', '.join(trial.placement_urls())}\n"
            f"metadata: {config.api.metadata.url}, consoles: {config.api.console.url}, web console: {trial.console_url}\nclouds: {path} (OS_CLOUD={ADMIN})\nCtrl-C stops all of it.\n"
        )
        sys.stdout.flush()
        signal.pause()
    except Invalid as problem:
        sys.stderr.write(f"moorage: {problem.public}\n")
        return 2
    except KeyboardInterrupt:
        sys.stdout.write("\n")
    finally:
        for sign in (signal.SIGINT, signal.SIGTERM):  # a second one would leave processes behind
            signal.signal(sign, signal.SIG_IGN)
        trial.stop()
    return 0
