"""The network service binds ports on no host: the owner sees that without host names, the operator sees each host."""

from tests.cloud.conftest import Start

from moorage.main.config import Cell, Hosts

INSIDE = ("host1", "host2", "host3", "physnet", "cell1")


async def test_the_owner_sees_no_host_names_when_no_host_binds_a_port(start: Start) -> None:
    hosts = Hosts(count=3, physical_networks=(("physnet1",),))
    async with start(hosts=hosts, cells=(Cell("cell1"),)) as running:
        network = running.cloud.embedded.network
        assert network is not None
        for host in ("host1", "host2", "host3"):
            assert await network.set_host_alive(host, alive=False)
        async with running.person("demo", "demo") as demo:
            server = await demo.settled(await demo.boot("refused"))
            assert server["status"] == "ERROR"
            assert "could not be bound" in server["fault"]["message"]
            at = f"/servers/{server['id']}"
            action = (await demo.compute("GET", f"{at}/os-instance-actions")).json()["instanceActions"][0]["request_id"]
            operations = (await demo.compute("GET", "/ext/operations", server=server["id"])).json()["operations"]
            places = [
                at,
                f"{at}/os-instance-actions",
                f"{at}/os-instance-actions/{action}",
                f"/ext{at}/explain",
                "/ext/operations",
                f"/ext/operations/{operations[0]['id']}",
            ]
            output = {place: (await demo.compute("GET", place)).text for place in places}
        assert {place: text for place, text in output.items() if any(each in text for each in INSIDE)} == {}
        explained = (await running.admin.compute("GET", f"/ext{at}/explain")).json()["explain"]
        said = str(explained["operations"][0]["attempts"])
        assert all(f"on host host{n}:" in said for n in (1, 2, 3)), "the operator reads which host, and why"
        await running.admin.gone(server["id"])
