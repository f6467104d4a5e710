"""`moorage placement`: the Placement API alone, at the root path.

It has a database and a port of its own, and no scheduler, bus or cells, so it starts at once.  It reads the `[placement]` table
of the configuration file, as the form at `/placement` of a whole cloud does.
"""

import argparse
import ipaddress
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from moorage.api.placement.app import Authenticate, make_placement_app
from moorage.api.placement.cors import Cors
from moorage.api.placement.noauth import believe, warn
from moorage.api.placement.policy import PlacementPolicy
from moorage.clients.http import ServiceClient
from moorage.clients.identity import IdentityClient
from moorage.clients.service_tokens import ServiceTokens
from moorage.main.config import Config, read_config
from moorage.main.event_loop import run_loop, settle_memory
from moorage.main.http_servers import HttpServer
from moorage.main.observability import Sources, observe
from moorage.main.private_data_dir import keep_private
from moorage.main.process import set_up_process, stop_on_signals
from moorage.main.schemas import PLACEMENT
from moorage.main.service_clients import service_password
from moorage.model.errors import Internal, Invalid, Problem, Unauthenticated
from moorage.model.principal import Principal
from moorage.model.verdict import Verdict
from moorage.model.world import Ask, World
from moorage.placement.engine import Engine
from moorage.sql import open_database
from moorage.sql.migrate import migrate


def keystone(identity: IdentityClient) -> Authenticate:
    """Return the function that authenticates requests: the identity service validates tokens.

    The function raises Unauthenticated when a request has no valid token.
    """

    async def authenticate(headers: Mapping[str, str]) -> Principal:
        token = headers.get("x-auth-token")
        if not token:
            raise Unauthenticated("The request you have made requires authentication.")
        return await identity.validate(token, headers.get("x-service-token"))

    return authenticate


def policy(config: Config) -> PlacementPolicy:
    """Return the policy rules in force. Raises Invalid when the policy file cannot be read."""
    mine = config.placement
    return PlacementPolicy.of_file(mine.policy_file or None, new_defaults=mine.enforce_new_defaults)


def _unranked(ask: Ask, world: World) -> Verdict:
    """Refuse to rank: the role `placement` schedules nothing."""
    raise Internal("the placement service alone does not schedule", private=repr((ask, world)))


def refuse_strangers(host: str) -> None:
    """Check that only this machine can reach the port, because `noauth2` accepts every caller. Raises Invalid otherwise."""
    try:
        near = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        near = False
    if not near:
        raise Invalid(
            f"noauth2 accepts every caller without a token, so it may listen on a loopback address only, and {host} is none; use "
            "keystone, or 127.0.0.1."
        )


async def run(config: Config) -> None:
    """Serve the Placement API at the root path until the process is asked to stop."""
    mine, listen = config.placement, config.api.placement
    if mine.auth_strategy == "noauth2":
        refuse_strangers(listen.host)
    door = HttpServer("placement", listen, config)
    observed = await observe(config, "placement")
    url = mine.database or f"sqlite:///{config.data / 'placement.db'}"
    database = await open_database(
        url, name="placement", durability=config.region.durability, limits=config.database.limits
    )
    await migrate(database, PLACEMENT)
    engine = Engine(database, _unranked)
    await engine.start()
    clients: tuple[ServiceClient, ...] = ()
    if mine.auth_strategy == "noauth2":
        warn()
        authenticate: Authenticate = believe
    else:
        identity, *rest = _identity(config)
        clients, authenticate = tuple(rest), keystone(identity)
    app = make_placement_app(engine, database, authenticate, policy=policy(config))
    origins = mine.cors_allowed_origins
    await door.open(observed.app("placement", Cors(app, origins, mine.cors_allow_headers) if origins else app))
    observed.sees(
        Sources(databases={"placement": database}, engine=engine, services=clients, doors={"placement": door})
    )
    settle_memory()
    print(f"moorage: placement on {listen.url}: ready", flush=True)
    await stop_on_signals(config).wait()
    await door.close()
    await engine.close()
    for service in clients:
        await service.close()
    await database.close()
    await observed.close()


def _identity(config: Config) -> tuple[IdentityClient, ServiceClient, ServiceClient]:
    url = config.identity.url or f"{config.api.identity.url}/v3"
    ca_file = config.ca_of(config.identity)
    token_client = ServiceClient("identity", url, ca_file=ca_file)
    user = config.service_user
    password = service_password(config)
    tokens = ServiceTokens(token_client, user=user.user, password=password, project=user.project, domain=user.domain)
    mine = ServiceClient("identity", url, tokens=tokens, ca_file=ca_file)
    return IdentityClient(mine), token_client, mine


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line, which overrides the file."""
    options = argparse.ArgumentParser(
        prog="moorage placement", description="The Placement API, alone, at the root path."
    )
    options.add_argument("--config", type=Path, help="a TOML file: [placement], [api.placement], [identity], …")
    options.add_argument("--data-dir", help="where the SQLite file lies when no database is given")
    options.add_argument(
        "--database", help="postgresql://… or sqlite:///… (default: placement.db in the data directory)"
    )
    options.add_argument("--host", help="address to listen on (default: 127.0.0.1)")
    options.add_argument("--port", type=int, help="port to listen on (default: 8778)")
    options.add_argument("--metrics-port", type=int, help="port of /metrics and /healthz (default: none)")
    options.add_argument("--identity-url", help="the identity service, up to and with /v3")
    options.add_argument("--auth-strategy", choices=("keystone", "noauth2"), help="default: keystone")
    options.add_argument("--policy-file", help="an oslo.policy file laid over the defaults")
    options.add_argument("--enforce-new-defaults", action=argparse.BooleanOptionalAction, default=None)
    options.add_argument("--cors-allowed-origin", action="append", help="may be given several times")
    options.add_argument("--cors-allow-header", action="append", help="may be given several times")
    options.add_argument("--log-level", choices=("debug", "info", "warning", "error"))
    return options


def configured(arguments: argparse.Namespace) -> Config:
    """Read the configuration file and apply the command line to it."""
    config = read_config(arguments.config)
    values = {
        "database": arguments.database,
        "auth_strategy": arguments.auth_strategy,
        "policy_file": arguments.policy_file,
        "enforce_new_defaults": arguments.enforce_new_defaults,
        "cors_allowed_origins": arguments.cors_allowed_origin and tuple(arguments.cors_allowed_origin),
        "cors_allow_headers": arguments.cors_allow_header and tuple(arguments.cors_allow_header),
    }
    replace = msgspec.structs.replace
    mine = replace(config.placement, **{name: value for name, value in values.items() if value is not None})
    listen = config.api.placement
    port = listen.port if arguments.port is None else arguments.port
    listen = replace(listen, host=arguments.host or listen.host, port=port)
    return replace(
        config,
        placement=mine,
        api=replace(config.api, placement=listen),
        identity=replace(config.identity, url=arguments.identity_url or config.identity.url),
        metrics=config.metrics
        if arguments.metrics_port is None
        else replace(config.metrics, port=arguments.metrics_port),
        data_dir=arguments.data_dir or config.data_dir,
        log_level=arguments.log_level or config.log_level,
    )


def main(argv: list[str]) -> int:
    """Run `moorage placement`. Returns 2 for an error that the caller can correct."""
    arguments = parser().parse_args(argv)
    try:
        config = configured(arguments)
        set_up_process(config)
        keep_private(config.data)
        run_loop(run(config))
    except Problem as problem:
        print(f"moorage: {problem.public}", file=sys.stderr)
        return 2
    return 0
