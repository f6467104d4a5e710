"""An operation that another process continues stays in its trace. It is in a file of its own, because a process has one tracer."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cloud.conftest import Running, a_config
from tests.helpers.trace_collector import Collector, collecting

from moorage.main.config import Hosts
from moorage.main.config_watching import TracingConfig
from moorage.main.up import start_cloud
from moorage_testing.api_user import Person
from moorage_testing.waiting import until


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.mark.slow
async def test_an_adopted_operation_continues_its_trace(tmp_path: Path, collector: Collector) -> None:
    config = a_config(tmp_path / "data", tracing=TracingConfig(endpoint=collector.url), hosts=Hosts(count=1))
    cloud = await start_cloud(config)
    try:
        async with Person(config) as admin:
            running = Running(cloud, admin)
            await running.listen()
            running.delay_verb("start_guest")
            reply = await admin.ask_boot()
            await until(lambda: any(step == "start_guest" for _, step in running.told))
    finally:
        await cloud.stop()
    cloud = await start_cloud(config)
    try:
        async with Person(config) as admin:
            running = Running(cloud, admin)
            server = reply.json()["server"]["id"]
            assert (await admin.settled(server))["status"] == "ACTIVE"
            await running.wait_until_unlocked(server)
            await running.idle()
    finally:
        await cloud.stop()
    trace = reply.headers["x-openstack-request-id"].removeprefix("req-").replace("-", "")
    listed = [each for each in collector.of(trace) if each.kind == "operation"]
    outcomes = [each.facts["outcome"] for each in sorted(listed, key=lambda each: int(each.facts["epoch"]))]
    assert len(outcomes) > 1
    assert outcomes == [*["left"] * (len(outcomes) - 1), "done"]
    assert {each.parent for each in listed} == {collector.named(trace, "POST /servers", "request").id}
