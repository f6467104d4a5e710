"""Each role of a set has a listener for health and metrics."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import msgspec
import pytest
from tests.cloud.conftest import SERVICES

from moorage.main import placement_role, roles
from moorage.main.config import OPTIONAL_PORTS, AgentConfig, ApiConfig, Config, Listen, RegionSettings
from moorage.main.config_watching import MetricsConfig
from moorage.main.local_cluster.ports import free_ports
from moorage.model.errors import Invalid
from moorage_testing.waiting import PATIENCE_S

HAS = {
    "api": {"moorage_picture_age_seconds", "moorage_bus_healthy", "moorage_calls_lost_total", "moorage_commands_in_flight"},
    "conductor": {"moorage_lease_held", "moorage_conductor_line", "moorage_hosts", "moorage_inbox_events", "moorage_round_failed"},
    "agent": {"moorage_agents", "moorage_agent_jobs_waiting", "moorage_bus_healthy"},
    "embedded": {"moorage_database_answers", "moorage_calls_lost_total"},
    "metadata": {"moorage_database_answers", "moorage_calls_lost_total"},
    "console": {"moorage_consoles_open", "moorage_bus_healthy"},
    "console-web": {"moorage_connections"},
}  # fmt: skip
NOT_HOME = "no agent of this process is home"


def a_role(data: Path) -> Config:
    names = (*SERVICES, *OPTIONAL_PORTS)
    listens = {name: Listen(port=port) for name, port in zip(names, free_ports(len(names)), strict=True)}
    return Config(
        data_dir=str(data),
        region=RegionSettings(durability="process"),
        api=ApiConfig(**listens),  # type: ignore[arg-type]
        agent=AgentConfig(host="host1"),
        metrics=MetricsConfig(port=free_ports(1)[0]),
        log_level="warning",
    )


async def _asked(url: str, until: Callable[[httpx.Response], bool]) -> httpx.Response:
    """The first answer that is so."""
    async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient() as http:
        while True:
            try:
                reply = await http.get(url)
            except httpx.TransportError:
                reply = None
            if reply is not None and until(reply):
                return reply
            await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("role", sorted(roles.ROLES))
async def test_each_role_shows_health_and_metrics(role: str, tmp_path: Path) -> None:
    config, stopping = a_role(tmp_path / "data"), asyncio.Event()
    run: Callable[[Config, asyncio.Event], Awaitable[None]] = roles.role_of(role)
    running = asyncio.ensure_future(run(config, stopping))
    url = f"http://127.0.0.1:{config.metrics.port}"
    try:
        assert (await _asked(f"{url}/healthz", lambda reply: reply.status_code == 200)).text == "OK\n"
        if role == "agent":  # nobody is there to welcome it
            await _asked(f"{url}/readyz", lambda reply: reply.text == f"{NOT_HOME}\n")
        else:
            await _asked(f"{url}/readyz", lambda reply: reply.status_code == 200)
        text = (await _asked(f"{url}/metrics", lambda reply: reply.status_code == 200)).text
        assert f'role="{role}"' in text
        assert {name for name in HAS[role] if f"# TYPE {name.removesuffix('_total')}" not in text} == set()
        assert ("moorage_lease_held" in text) == (role == "conductor")
    finally:
        stopping.set()
        await asyncio.wait_for(running, PATIENCE_S)
    with pytest.raises(httpx.ConnectError):
        async with httpx.AsyncClient() as http:
            await http.get(f"{url}/healthz")


@pytest.mark.parametrize("port", [-1, 65536])
def test_a_port_that_is_none_is_refused(port: int) -> None:
    from moorage.main.config import checked

    with pytest.raises(Invalid, match="port is from 0"):
        checked(Config(metrics=MetricsConfig(port=port)))


def test_command_line_options_override_the_file() -> None:
    arguments = placement_role.parser().parse_args(["--metrics-port", "9999"])
    assert placement_role.configured(arguments).metrics.port == 9999
    assert placement_role.configured(placement_role.parser().parse_args([])).metrics.port == 0


def test_a_sample_is_a_part() -> None:
    with pytest.raises(msgspec.ValidationError, match="sample"):
        msgspec.toml.decode(b"[tracing]\nsample = 1.5", type=Config)
