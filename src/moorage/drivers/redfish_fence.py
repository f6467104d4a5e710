"""The fence plug-in of machines whose management controllers speak Redfish: it asks for the power state, and switches machines off if it may.

Each call opens a connection of its own with basic authentication, so no session is left on a controller, which has few.  The library
waits in threads; each of its requests ends by itself within `timeout_s`, and is tried once: who asks, asks again.  The threads are its own:
when a row of machines has lost its power, their controllers hang, and the loop's few threads look up names and read files for everybody else.
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
"""Controllers that are asked at once."""
MISSING = "fence_plugin is 'redfish', and the library for that is not installed: pip install 'moorage[redfish]'"


class RedfishMachine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A host's management controller."""

    host: str
    """As `openstack compute service list` names it."""
    url: str
    """`https://…`, without a path."""
    system: str = ""
    """The path of the machine there (`/redfish/v1/Systems/1`); empty: the controller has one only."""
    username: str = ""
    password_file: str = ""
    """Read at each use; its last line feed does not count."""
    ca_file: str = ""
    """Of the controller's certificate; empty: the authorities of the Python package certifi, not those of the system."""
    insecure: bool = False
    """Its certificate is not checked."""


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
        """One question at a time to each controller; who comes before the next is put shares its answer, so none is older than its question."""
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
        """At once, whatever runs there, and wait until it says that it is off.

        A controller that refuses because the machine is going off already, or that does it and answers late, is looked at all the same.
        """
        if not self.can_switch_off(host):
            return False
        machine, until = self._machines[host], time.monotonic() + self.off_within_s
        _log.warning("the machine of host %s is switched off, by %s", host, machine.url)
        told = await self._in_thread(self._force_off, machine)
        while True:
            if await self.is_off(host):
                return True
            if not told or time.monotonic() >= until:
                return False
            await asyncio.sleep(LOOK_EVERY_S)

    async def _in_thread(self, work: Callable[[RedfishMachine], bool], machine: RedfishMachine) -> bool:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, machine)

    def _is_off(self, machine: RedfishMachine) -> bool:
        """What cannot be asked is not sure; a machine that is about to be off is not off."""
        try:
            return bool(self._system(machine).power_state is self._sushy.PowerState.OFF)
        except self._failures as failure:
            _log.warning("%s does not say whether host %s is off: %s", machine.url, machine.host, failure)
            return False

    def _force_off(self, machine: RedfishMachine) -> bool:
        """False: it was certainly not told, so nobody waits for it."""
        try:
            self._system(machine).reset_system(self._sushy.ResetType.FORCE_OFF)
        except self._failures as failure:
            _log.warning("%s did not switch host %s off: %s", machine.url, machine.host, failure)
            return not isinstance(failure, self._hopeless)
        return True

    def _system(self, machine: RedfishMachine) -> Any:
        """As it is now."""
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
