"""`moorage placement` as a separate process, at the root path, with a database of its own."""

import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from moorage.main.local_cluster.ports import free_port
from moorage.store.region.placement.tables import placement_metadata

START_DEADLINE_S = 180.0
OPENSTACK = Path(sys.executable).parent / "openstack"


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[str]:
    """Its URL; configured by a file and an option over it."""
    port = free_port()
    rules = tmp_path / "policy.yaml"
    rules.write_text('"placement:traits:list": "@"\n')
    file = tmp_path / "moorage.toml"
    file.write_text(
        f'data_dir = "{tmp_path}"\n'
        f'[placement]\nauth_strategy = "noauth2"\npolicy_file = "{rules}"\n'
        'cors_allowed_origins = ["http://valid.example.com"]\ncors_allow_headers = ["openstack-api-version"]\n'
    )
    words = [sys.executable, "-m", "moorage", "placement", "--config", str(file), "--port", str(port)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, cwd=tmp_path)
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + START_DEADLINE_S
        while True:
            try:
                httpx.get(url + "/")
                break
            except httpx.TransportError:
                assert process.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < deadline
                time.sleep(0.02)
        assert "every client of this port" in (tmp_path / "log").read_text()
        yield url
    finally:
        process.terminate()
        assert process.wait(180) == 0


def test_a_separate_placement_has_its_own_tables_tokens_and_policy(alone: str, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "placement.db") as database:
        made = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert made == {*placement_metadata.tables, "placement_version"}

    def get(path: str, **headers: str) -> httpx.Response:
        return httpx.get(
            alone + path, headers={name.replace("_", "-"): value for name, value in headers.items()}, timeout=180
        )

    assert get("/").json()["versions"][0]["max_version"] == "1.39"
    assert get("/resource_providers").status_code == 401
    latest = {"openstack_api_version": "placement latest"}
    assert get("/resource_providers", x_auth_token="admin", **latest).json() == {"resource_providers": []}
    assert get("/resource_providers", x_auth_token="somebody", **latest).status_code == 403
    assert get("/traits", x_auth_token="somebody", **latest).status_code == 200  # the policy file
    assert get("/resource_providers", x_auth_token="somebody", x_roles="member,service").status_code == 200
    assert get("/resource_providers", x_auth_token="admin", openstack_system_scope="all").status_code == 403
    own = "/usages?project_id=harbour"
    assert get(own, x_auth_token="alice:harbour", x_roles="reader", **latest).status_code == 200
    assert get(own, x_auth_token="alice:lighthouse", x_roles="reader", **latest).status_code == 403
    assert get(own, x_auth_token="alice", x_project_id="harbour", x_roles="reader", **latest).status_code == 200
    asked = {
        "origin": "http://valid.example.com",
        "access-control-request-method": "GET",
        "access-control-request-headers": "openstack-api-version",
    }
    preflight = httpx.options(alone + "/resource_providers", headers=asked)
    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "http://valid.example.com"
    assert preflight.headers["access-control-allow-headers"] == "openstack-api-version"
    stranger = httpx.options(alone + "/", headers=asked | {"origin": "http://invalid.example.com"})
    assert stranger.status_code == 200
    assert "access-control-allow-origin" not in stranger.headers


@pytest.mark.skipif(not OPENSTACK.exists(), reason="the openstack client is not installed")
def test_the_client_works_with_it(alone: str) -> None:
    def say(*words: str) -> str:
        who = ["--os-auth-type", "admin_token", "--os-endpoint", alone, "--os-token", "admin"]
        command = [str(OPENSTACK), *who, "--os-placement-api-version", "1.39", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=180).stdout.strip()

    uuid = say("resource", "provider", "create", "berth", "-f", "value", "-c", "uuid")
    assert "VCPU" in say("resource", "provider", "inventory", "set", uuid, "--resource", "VCPU=8", "-f", "value")
    found = say("allocation", "candidate", "list", "--resource", "VCPU=2", "-f", "value")
    assert uuid in found
