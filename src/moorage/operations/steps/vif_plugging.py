"""Waits until the network service reports ports as plugged: woken by its events, which are stored in the inbox (RULES
§20).

Hints and events may be lost: the inbox and the ports are also polled, with growing pauses.
"""

import asyncio
import logging
from collections.abc import Iterable

from moorage.model.errors import HostFailed, Unavailable
from moorage.model.ids import ServerId
from moorage.model.network import Port
from moorage.model.retry import jittered
from moorage.operations.context import SagaContext
from moorage.operations.steps.ports import VIF_PLUGGED
from moorage.operations.steps.servers import AboutServer
from moorage.saga import Run
from moorage.store.region import inbox

VIF_PLUGGING_MAX_S = 3600.0
"""The longest wait for a plug, whatever is configured."""
LOOK_FIRST_S = 5.0
LOOK_MOST_S = 30.0

logger = logging.getLogger(__name__)


async def await_plugged(run: Run[AboutServer, SagaContext], ports: Iterable[Port], host: str) -> None:
    """Wait until these ports are up on this host, as long as configured. Raises HostFailed when the time is over and
    that is configured as fatal.
    """
    settings, waiting = run.context.settings, {port.id for port in ports if port.status != "ACTIVE"}
    if settings.vif_plugging_timeout_s <= 0 or not waiting:
        return
    missing = await unplugged_after(run, waiting, host, min(settings.vif_plugging_timeout_s, VIF_PLUGGING_MAX_S))
    if missing and settings.vif_plugging_is_fatal:
        private = ", ".join(sorted(missing))
        raise HostFailed("the network was not plugged in time", private=private, code="vif_not_plugged")


async def unplugged_after(run: Run[AboutServer, SagaContext], ports: set[str], host: str, timeout_s: float) -> set[str]:
    """Wait until all these ports are up on this host; return those that are not when the time is over. Raises
    HostFailed if one failed.
    """
    server, waiting, loop = run.input.server.id, set(ports), asyncio.get_running_loop()
    until, look_in_s = loop.time() + timeout_s, LOOK_FIRST_S
    with run.context.arrivals.of(server) as arrived:
        while True:
            arrived.clear()
            try:
                waiting -= await plugged_ports(run.context, server, waiting, host)
            except Unavailable as out:  # the plug is not reported yet, which is what this waits for
                logger.info("%s: the state of ports cannot be read yet: %s", run.operation, out)
            left_s = until - loop.time()
            if not waiting or left_s <= 0:
                return waiting
            try:
                async with asyncio.timeout(min(left_s, jittered(look_in_s))):
                    await arrived.wait()
            except TimeoutError:
                look_in_s = min(look_in_s * 2, LOOK_MOST_S)


async def plugged_ports(context: SagaContext, server: ServerId, waiting: set[str], host: str) -> set[str]:
    """Those of the awaited ports that are up on this host. Raises HostFailed when the network service reports that one
    failed.
    """
    events = await context.region.read(lambda tx: inbox.of_server(tx, server, VIF_PLUGGED))
    ports = {port.id: port for port in await context.network.ports_of(server) if port.host == host}
    failed = [event.tag for event in events if event.status == "failed" and event.tag in waiting & ports.keys()]
    if failed:
        raise HostFailed("the network could not be plugged", private=", ".join(failed), code="vif_not_plugged")
    completed = {event.tag for event in events if event.status == "completed"}
    return {key for key, port in ports.items() if key in waiting and (port.status == "ACTIVE" or key in completed)}
