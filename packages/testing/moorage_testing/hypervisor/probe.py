"""Whether a guest really can run here: `python -m moorage_testing.hypervisor probe` boots one, and says in one sentence why not.

Packages that are there, `/dev/kvm` and a daemon that answers prove nothing: containers and small kernels have all of these and no bridge.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

DEVICES = (
    ("a bridge", ("link", "add", "probe0", "type", "bridge")),
    ("a tap device", ("tuntap", "add", "probe1", "mode", "tap")),
    ("a pair of devices between namespaces", ("link", "add", "probe2", "type", "veth", "peer", "name", "probe3")),
)
BOOTS_WITHIN_S = 240.0
"""Emulated, on a machine that does much else."""
SAYS = "GUEST: kernel"
DOMAIN = """
<domain type='qemu'>
  <name>probe</name><memory unit='MiB'>128</memory><vcpu>1</vcpu>
  <os><type arch='{arch}'>hvm</type><kernel>{guest}/vmlinuz</kernel><initrd>{guest}/initrd.img</initrd>
    <cmdline>console=ttyS0 quiet no_timer_check panic=5</cmdline></os>
  <features><acpi/></features>
  <devices><serial type='file'><source path='{said}'/></serial></devices>
</domain>
"""


def obstacles() -> Iterator[str]:
    """Why no guest can run, inside the namespaces of `machine.py`; nothing when one has run."""
    for name, words in DEVICES:
        made = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
        if made.returncode:
            yield f"the kernel makes no {name.split(' ', 1)[1]} ({_last_line(made.stderr)})"
    with TemporaryDirectory(prefix="moorage-probe-") as directory:
        yield from _guest(Path(directory))


def _guest(directory: Path) -> Iterator[str]:
    console_log, xml = directory / "said", directory / "domain.xml"
    console_log.touch()
    xml.write_text(DOMAIN.format(arch=os.uname().machine, guest=os.environ["MOORAGE_TEST_GUEST"], said=console_log))
    started = subprocess.run(["virsh", "-q", "create", str(xml)], capture_output=True, text=True, check=False)
    if started.returncode:
        yield f"libvirt starts no guest ({_last_line(started.stderr)})"
        return
    try:
        ends = time.monotonic() + BOOTS_WITHIN_S
        while SAYS not in console_log.read_text(errors="replace"):
            if time.monotonic() > ends:
                yield f"a guest did not boot within {BOOTS_WITHIN_S:.0f} s"
                return
            time.sleep(0.2)
    finally:
        subprocess.run(["virsh", "-q", "destroy", "probe"], capture_output=True, check=False)


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1] if lines else "without a word"


if __name__ == "__main__":
    found = list(obstacles())
    if found:
        sys.exit(f"no guest can run here: {', '.join(found)}")
