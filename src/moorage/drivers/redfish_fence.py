"""The fence plug-in for management controllers with Redfish: it reads the power state, and switches machines off if that is allowed.

Each call opens a connection of its own with basic authentication, so no session is left on a controller, which has few of them.  The
library blocks, so it runs in threads; each of its requests ends within `timeout_s`, and is tried once, because the caller repeats it.
These threads are separate from the event loop's: if many machines have lost their power, their controllers hang, and the event loop needs its
own few threads to look up names and to read files.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from moorage.model.errors import Invalid

_log = logging.getLogger(__name__)

LOOK_EVERY_S = 1.0
THREADS_MAX = 32
"""Limit of controllers that are called at once."""
MISSING = "fence_plugin is 'redfish', and the library for that is not installed: pip install -c constraints.txt -e '.[redfish]' in the directory of Moorage's repository"


class RedfishMachine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host's management controller."""

    host: str
    """The host's name, as in `openstack compute service list`."""
    url: str
    """`https://…`, without a path."""
    system: str = ""
    """Path of the machine on the controller (`/redfish/v1/Systems/1`); empty: the controller has only one machine."""
    username: str = ""
    password_file: str = ""
    """File with the password, read at each use; a line feed at its end is ignored."""
    ca_file: str = ""
    """PEM file of the CA of the controller's certificate; empty: the CAs of the Python package certifi, not those of the system."""
    insecure: bool = False
    """Whether its certificate is not checked."""


class RedfishFence:
    name = "redfish"

    def __init__(
        self, machines: Mapping[str, RedfishMachine], *, power_off: bool, timeout_s: float, off_within_s: float
    ) -> None:
        """Raises Invalid when the library is not installed."""
        self._machines, self._power_off = machines, power_off
        self._timeout_s, self.off_within_s = timeout_s, off_within_s
        try:
            import sushy
            from sushy import auth, exceptions
        except ImportError:
            raise Invalid(MISSING) from None
        self._sushy: Any = sushy
        self._auth: Any = auth.BasicAuth
        self._failures: tuple[type[Exception], ...] = (exceptions.SushyError, OSError, ValueError)
        self._hopeless: tuple[type[Exception], ...] = (
            exceptions.AccessError,
            exceptions.ResourceNotFoundError,
            exceptions.InvalidParameterValueError,
        )
        self._threads = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="redfish")
        self._turns: dict[str, asyncio.Lock] = {}
        self._coming: dict[str, asyncio.Task[bool]] = {}

    async def is_off(self, host: str) -> bool:
        """Read the power state, with one call at a time to each controller. Callers that wait share the next call's answer, so no answer is
        older than its question."""
        machine = self._machines.get(host)
        if machine is None:
            return False
        coming = self._coming.get(host)
        if coming is None:
            coming = self._coming[host] = asyncio.create_task(self._ask(machine))
        return await asyncio.shield(coming)

    async def _ask(self, machine: RedfishMachine) -> bool:
        async with self._turns.setdefault(machine.host, asyncio.Lock()):
            self._coming.pop(machine.host, None)
            return await self._in_thread(self._is_off, machine)

    def can_switch_off(self, host: str) -> bool:
        return self._power_off and host in self._machines

    async def switch_off(self, host: str) -> bool:
        """Switch the machine off at once, even if guests run there, and wait until the controller reports that it is off.

        The power state is also read if the controller refuses, because the machine is switching off already, or answers late.
        """
        if not self.can_switch_off(host):
            return False
        machine, until = self._machines[host], time.monotonic() + self.off_within_s
        _log.warning("the machine of host %s is switched off, by %s", host, machine.url)
        accepted = await self._in_thread(self._force_off, machine)
        while True:
            if await self.is_off(host):
                return True
            if not accepted or time.monotonic() >= until:
                return False
            await asyncio.sleep(LOOK_EVERY_S)

    async def _in_thread(self, work: Callable[[RedfishMachine], bool], machine: RedfishMachine) -> bool:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, machine)

    def _is_off(self, machine: RedfishMachine) -> bool:
        """Whether the machine is certainly off: false if the controller does not answer, or while the machine is switching off."""
        try:
            return bool(self._system(machine).power_state is self._sushy.PowerState.OFF)
        except self._failures as failure:
            _log.warning("%s does not say whether host %s is off: %s", machine.url, machine.host, failure)
            return False

    def _force_off(self, machine: RedfishMachine) -> bool:
        """Send the command; false: the controller certainly did not get it, so waiting is useless."""
        try:
            self._system(machine).reset_system(self._sushy.ResetType.FORCE_OFF)
        except self._failures as failure:
            _log.warning("%s did not switch host %s off: %s", machine.url, machine.host, failure)
            return not isinstance(failure, self._hopeless)
        return True

    def _system(self, machine: RedfishMachine) -> Any:
        """Read the machine's present state."""
        password = Path(machine.password_file).read_text().removesuffix("\n") if machine.password_file else ""
        root = self._sushy.Sushy(
            machine.url,
            auth=self._auth(username=machine.username, password=password),
            verify=False if machine.insecure else machine.ca_file or True,
            server_side_retries=1,  # none would be three
            read_timeout=self._timeout_s,
            connect_timeout=self._timeout_s,
        )
        return root.get_system(machine.system or None)
