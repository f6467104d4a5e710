"""Observability of a cloud: its metrics after some boots, and one trace through all processes."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import httpx
import pytest
import pytest_asyncio
from prometheus_client.parser import text_string_to_metric_families
from tests.cloud.conftest import Running, Shared
from tests.helpers.trace_collector import Collector, collecting

from moorage.drivers.fault_injection import VerbDial
from moorage.main.config import Hosts
from moorage.main.config_watching import MetricsConfig, TracingConfig
from moorage.main.local_cluster.ports import free_ports
from moorage.main.observability.database_reads import PATIENCE_S
from moorage.main.observability.metric_families import FAMILIES, LIBRARY_FAMILIES, samples
from moorage.model.errors import Unavailable
from moorage_testing.waiting import until

pytestmark = pytest.mark.asyncio(loop_scope="module")

NOT_IN_THIS_CLOUD = {"moorage_consoles_open", "moorage_outbox_rows", "moorage_outbox_oldest_seconds"}
"""It has no console proxy, and tells nobody of its servers."""
SCRAPED_WITHIN_S = 2.0


def seen(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Samples by name and labels, read as Prometheus reads them."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


@dataclass
class Scrape:
    samples: dict[str, dict[tuple[tuple[str, str], ...], float]]
    took_s: float

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples that have these labels."""
        some = [value for key, value in self.samples.get(name, {}).items() if labels.items() <= dict(key).items()]
        assert some, f"no {name} {labels}"
        return sum(some)


class Watched:
    """The cloud, and those who look at it."""

    def __init__(self, running: Running, collector: Collector) -> None:
        self.running = running
        self.collector = collector
        self.url = f"http://127.0.0.1:{running.config.metrics.port}"

    async def get(self, path: str, **headers: str) -> httpx.Response:
        async with httpx.AsyncClient(timeout=30) as http:
            return await http.get(self.url + path, headers=headers)

    async def scrape(self) -> Scrape:
        began = time.monotonic()
        reply = await self.get("/metrics")
        took_s = time.monotonic() - began
        assert reply.status_code == 200
        assert reply.headers["content-type"].startswith("text/plain")
        return Scrape(seen(reply.text), took_s)

    async def trace_of(self, request_id: str) -> str:
        """The id of the trace that a request began, when its spans are at the collector."""
        tracing = self.running.cloud.observed.tracing
        assert tracing is not None
        await tracing.flush()
        return request_id.removeprefix("req-").replace("-", "")


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cloud(tmp_path_factory: pytest.TempPathFactory, collector: Collector) -> AsyncIterator[Shared]:
    changes = {
        "metrics": MetricsConfig(port=free_ports(1)[0], kept_s=0.001),
        "tracing": TracingConfig(endpoint=collector.url, trust_callers=True),
        "hosts": Hosts(count=2),
    }
    shared = Shared(tmp_path_factory.mktemp("watched"), changes)
    yield shared
    await shared.stop()


@pytest_asyncio.fixture(loop_scope="module")
async def watched(cloud: Shared, collector: Collector) -> AsyncIterator[Watched]:
    async with cloud.for_a_test() as running:
        yield Watched(running, collector)


async def test_every_metric_family_is_exported_with_values(watched: Watched) -> None:
    running, admin = watched.running, watched.running.admin
    first, second = await admin.active("first"), await admin.active("second")
    await running.wait_until_unlocked(first["id"])
    await running.wait_until_unlocked(second["id"])
    scrape = await watched.scrape()
    wanted = {sample for name in FAMILIES.keys() - NOT_IN_THIS_CLOUD for sample in samples(name)}
    # nothing is open, nobody was turned away, and no host has a port that it could not wire
    empty = {
        "moorage_operations",
        "moorage_operations_oldest_seconds",
        "moorage_ports_not_wired",
        "moorage_refused_total",
    }
    assert wanted - scrape.samples.keys() <= empty
    assert scrape.samples.keys() - wanted == set(LIBRARY_FAMILIES)
    assert scrape.value("moorage_ready") == 1
    assert scrape.value("moorage_requests_total", service="compute", method="POST", route="/servers", status="202") == 2
    assert scrape.value("moorage_request_seconds_count", service="compute", method="POST", route="/servers") == 2
    assert scrape.value("moorage_requests_total", service="network", route="/v2.0/networks") >= 1
    assert scrape.value("moorage_operations_told_total", saga="boot/1", outcome="done") == 2
    assert scrape.value("moorage_operation_seconds_count", saga="boot/1") == 2
    assert scrape.value("moorage_step_seconds_count", step="start_guest", phase="do") == 2
    assert scrape.value("moorage_commands_total", verb="start_guest", outcome="ok") == 2
    assert scrape.value("moorage_agent_verbs_total", verb="start_guest", outcome="ok") == 2
    assert scrape.value("moorage_calls_total", neighbour="network", call="POST ports", outcome="201") == 2
    assert scrape.value("moorage_hosts", state="up") == 2
    assert scrape.value("moorage_hosts", state="silent") == 0
    assert scrape.value("moorage_agents", state="home") == 2
    assert scrape.value("moorage_picture_hosts") == 2
    assert scrape.value("moorage_lease_held") == scrape.value("moorage_conductor_leads") == 1
    assert 0 < scrape.value("moorage_lease_left_seconds") <= running.config.compute.lease_s
    assert scrape.value("moorage_bus_healthy") == 1
    assert scrape.value("moorage_bus_forged_total") == 0
    assert scrape.value("moorage_database_answers") == 3
    assert scrape.value("moorage_database_commits_total", database="region") > 0
    assert scrape.value("moorage_breaker_open") == 0


async def test_operations_are_counted_by_saga_and_state(watched: Watched) -> None:
    running, admin = watched.running, watched.running.admin
    gate = running.delay_verb("start_guest")
    server = await admin.boot()
    conductor = running.cloud.region.conductor
    assert conductor is not None
    await until(lambda: any(step == "start_guest" for _, step in running.told))
    scrape = await watched.scrape()
    assert scrape.value("moorage_operations", saga="boot/1", state="running") == 1
    assert scrape.value("moorage_operations", saga="boot/1", state="stuck") == 0
    assert scrape.value("moorage_operations_oldest_seconds", saga="boot/1", state="running") >= 0
    assert scrape.value("moorage_conductor_taken", kind="boot") == 1
    assert scrape.value("moorage_commands_in_flight") == 1
    assert scrape.value("moorage_agent_lanes") == 1
    assert scrape.value("moorage_guests_without_space") == 0
    gate.set()
    await admin.settled(server)
    await running.wait_until_unlocked(server)
    assert (await watched.scrape()).value("moorage_conductor_taken", kind="boot") == 0


async def test_health_is_shown_without_a_token(watched: Watched) -> None:
    assert (await watched.get("/healthz")).text == "OK\n"
    assert (await watched.get("/readyz")).text == "OK\n"
    assert (await watched.get("/servers")).status_code == 404
    watched.running.cloud.region.bus.dials.cut = True  # type: ignore[attr-defined]
    try:
        out = await watched.get("/readyz")
        assert (out.status_code, out.text) == (503, "the message bus is out\n")
        assert (await watched.get("/healthz")).status_code == 200
    finally:
        watched.running.cloud.region.bus.dials.cut = False  # type: ignore[attr-defined]


async def test_requests_refused_by_a_listener_are_counted(watched: Watched) -> None:
    compute = watched.running.config.api.compute
    async with httpx.AsyncClient() as http:
        refused = await http.get(f"http://{compute.host}:{compute.port}/", headers={"X-Long": "x" * 200_000})
    assert refused.status_code == 431
    scrape = await watched.scrape()
    assert scrape.value("moorage_refused_total", service="compute", why="431") == 1
    assert scrape.value("moorage_connections", service="compute") >= 1


async def test_openmetrics_is_negotiated(watched: Watched) -> None:
    reply = await watched.get("/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert reply.headers["content-type"].startswith("application/openmetrics-text")
    assert reply.text.endswith("# EOF\n")


async def slept(seconds: float) -> float:
    """How long that really takes: a busy machine rings late."""
    began = time.monotonic()
    await asyncio.sleep(seconds)
    return time.monotonic() - began


async def test_a_scrape_with_a_dead_database_exports_what_is_known(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs: nobody waits for it for longer than a second, and there is one look at it however many scrape."""
    await watched.running.idle()
    await watched.scrape()
    region = watched.running.cloud.region.databases.region
    reads, gate = [0], asyncio.Event()
    read = region.read

    async def hangs(work: object) -> object:
        if getattr(getattr(work, "func", work), "__name__", "") != "_read_queues":
            return await read(work)  # type: ignore[arg-type]
        reads[0] += 1
        await gate.wait()
        raise Unavailable("the region database is out")

    monkeypatch.setattr(region, "read", hangs)
    for _ in range(3):
        scrape, slept_s = await asyncio.gather(watched.scrape(), slept(PATIENCE_S))
        assert scrape.took_s < SCRAPED_WITHIN_S * slept_s / PATIENCE_S
        assert scrape.value("moorage_database_answers", database="region") == 0
        assert scrape.value("moorage_inbox_events") >= 0  # as it was a moment ago
    assert reads == [1]
    assert (await watched.get("/readyz")).text == "the region database does not answer\n"
    gate.set()
    await until(lambda: reads[0] == 1)
    monkeypatch.undo()
    assert (await watched.scrape()).value("moorage_database_answers", database="region") == 1


async def test_one_trace_includes_all_processes(watched: Watched) -> None:
    running, admin = watched.running, watched.running.admin
    reply = await admin.ask_boot()
    server = reply.json()["server"]["id"]
    await admin.settled(server)
    await running.wait_until_unlocked(server)
    await running.idle()
    trace = await watched.trace_of(reply.headers["x-openstack-request-id"])
    named, spans = watched.collector.named, watched.collector.of(trace)
    by_id = {each.id: each for each in spans}
    asked = named(trace, "POST /servers", "request")
    assert asked.parent == ""
    assert asked.facts["request_id"] == reply.headers["x-openstack-request-id"]
    told = named(trace, "boot/1", "operation")
    assert (told.parent, told.facts["server"], told.facts["outcome"]) == (asked.id, server, "done")
    steps = [each for each in spans if each.kind == "step"]
    assert {"make_ports", "claim_host", "bind_ports", "start_guest", "announce"} <= {each.name for each in steps}
    assert {each.parent for each in steps} == {told.id}
    calls = [each for each in spans if each.kind == "call"]
    assert {by_id[each.parent].kind for each in calls} <= {"step", "request", "drive"}
    assert by_id[named(trace, "network POST ports", "call").parent].name == "make_ports"
    command = named(trace, "start_guest", "command")
    assert by_id[command.parent] == named(trace, "start_guest", "step")
    obeyed = named(trace, "start_guest", "obey")
    assert obeyed.parent == command.id
    assert named(trace, "start_guest", "drive").parent == obeyed.id
    assert all(each.parent in by_id for each in spans if each is not asked)
    assert not any(each.failed for each in spans)


async def test_a_failed_attempt_and_its_undo_are_in_the_trace(watched: Watched) -> None:
    running, admin = watched.running, watched.running.admin
    running.set_faults_everywhere(start_guest=VerbDial(fail_chance=1.0))
    reply = await admin.ask_boot()
    server = reply.json()["server"]["id"]
    assert (await admin.settled(server))["status"] == "ERROR"
    await running.wait_until_unlocked(server)
    await running.idle()
    trace = await watched.trace_of(reply.headers["x-openstack-request-id"])
    told = watched.collector.named(trace, "boot/1", "operation")
    assert (told.facts["outcome"], told.failed) == ("failed", True)
    spans = watched.collector.of(trace)
    assert [each.facts["outcome"] for each in spans if each.kind == "command" and each.name == "start_guest"] == [
        "failed",
        "failed",
    ]
    assert any(each.facts.get("phase") == "undo" for each in spans if each.kind == "step")
    scrape = await watched.scrape()
    assert scrape.value("moorage_operations_told_total", saga="boot/1", outcome="failed") == 1


async def test_a_clients_trace_is_continued(watched: Watched) -> None:
    trace, above = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    headers = watched.running.admin.http.headers
    headers["traceparent"] = f"00-{trace}-{above}-01"
    try:
        await watched.running.admin.compute("GET", "/flavors")
    finally:
        del headers["traceparent"]
    await watched.trace_of("")
    assert watched.collector.named(trace, "GET /flavors", "request").parent == above
