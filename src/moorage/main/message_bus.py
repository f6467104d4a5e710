"""Opens the message bus of a process."""

from pathlib import Path

from moorage.bus.memory import MemoryBus
from moorage.bus.nats import connect
from moorage.bus.security import Security, wants_tls
from moorage.bus.transport import Bus
from moorage.main.config import Config


async def open_bus(config: Config) -> Bus:
    """Open the bus that the configuration names: `memory:` or `nats://host:port[,…]`.

    Raises Invalid for credentials or certificates that cannot be used.
    """
    settings = config.bus
    if settings.url in {"", "memory:"}:
        return MemoryBus()

    def file(name: str) -> Path | None:
        return config.data / name if name else None

    security = Security(
        nkey=file(settings.nkey),
        credentials=file(settings.credentials),
        tls=settings.tls or wants_tls(settings.url),
        ca=file(settings.ca),
        cert=file(settings.cert),
        key=file(settings.key),
    )
    return await connect(settings.url.split(","), security=security)
