"""Builds the web console of one process: beside other services, or alone (`moorage console-web`). It needs no database and no bus."""

import asyncio
import ssl

from msgspec.structs import replace

from moorage.main.config import OPTIONAL_PORTS, Config
from moorage.main.http_servers import HttpServer
from moorage.main.observability import Observed, Sources, observe
from moorage.model.errors import Invalid
from moorage.webconsole.app import App
from moorage.webconsole.settings import ConsoleAddresses

NAME = "webconsole"
ROLE = "console-web"


def make_webconsole(config: Config) -> App:
    """Build the application. Raises Invalid when the CA file cannot be read."""
    listen = config.api.webconsole
    url = replace(listen, port=listen.port or OPTIONAL_PORTS[NAME]).url
    place = ConsoleAddresses(
        identity_url=(config.identity.url or f"{config.api.identity.url}/v3").rstrip("/"),
        region=config.region.name,
        secure=url.startswith("https:"),
        ca_file=config.ca_of(config.identity),
    )
    try:
        return App(place, config.webconsole)
    except (OSError, ssl.SSLError) as wrong:
        raise Invalid(f"the CA file {place.ca_file} cannot be read for the web console: {wrong}") from wrong


async def open_webconsole(server: HttpServer, config: Config, observed: Observed) -> App:
    """Open the listener and serve the web console."""
    app = make_webconsole(config)
    await server.open(observed.app(NAME, app))
    return app


async def webconsole(config: Config, stopping: asyncio.Event) -> None:
    """Run the role `console-web`."""
    server = HttpServer(NAME, config.api.webconsole, config)
    observed = await observe(config, ROLE)
    app = await open_webconsole(server, config, observed)
    observed.sees(Sources(doors={NAME: server}))
    print(f"moorage: web console on {config.api.webconsole.url}: ready", flush=True)
    await stopping.wait()
    await app.close()
    await server.close()
    await observed.close()
