"""The `openstack` client against a cloud of `moorage up`: every supported command, over TLS.

One cloud, one client process, which trusts the CA that `clouds.yaml` names; `MOORAGE_CLOUDS_YAML` names a running cloud to use in place of one of our own.
"""

import importlib.util
import json
import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest
from tests.cloud import network_script, volume_script
from tests.cloud import openstack_script as script
from tests.cloud import openstack_services_script as services_script
from tests.cloud import placement_script as placement

from moorage.main.local_cluster.certificates import CertificateAuthority
from moorage.main.local_cluster.ports import free_ports

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("openstackclient") is None or importlib.util.find_spec("osc_placement") is None,
    reason="python-openstackclient and osc-placement are not installed (the extra `client`)",
)
PUBLIC_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIsjfXiOjqrvVQxtElgj+kXx/V/CmyyIvfhxEZRx/BMS me@here\n"
HERE = Path(__file__).parent
START_S = 180.0
WAIT_S = 180.0


@pytest.fixture(scope="module")
def clouds_yaml(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if running := os.environ.get("MOORAGE_CLOUDS_YAML"):
        yield Path(running)
        return
    place = tmp_path_factory.mktemp("cloud")
    names = ("compute", "placement", "identity", "image", "network", "volume", "metadata", "console", "webconsole")
    ports = [
        word for name, port in zip(names, free_ports(len(names)), strict=True) for word in (f"--{name}-port", str(port))
    ]
    authority = CertificateAuthority(place / "ca")
    made = authority.issue("server")
    config = f'log_format = "json"\n[api]\ncert = "{made.cert}"\nkey = "{made.key}"\nca_file = "{authority.file}"\n'
    (place / "cloud.toml").write_text(config)
    ports += ["--config", str(place / "cloud.toml")]
    with (place / "log").open("wb") as log:
        cloud = subprocess.Popen(
            [sys.executable, "-m", "moorage", "up", "--data-dir", str(place / "data"), "--durability", "process", *ports],
            cwd=place, stdout=log, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
    try:
        deadline = time.monotonic() + START_S
        while "Moorage is up" not in (place / "log").read_text():
            assert cloud.poll() is None, (place / "log").read_text()
            assert time.monotonic() < deadline, (place / "log").read_text()
            time.sleep(0.05)
        yield place / "clouds.yaml"
    finally:
        cloud.send_signal(signal.SIGINT)
        cloud.wait(START_S)


class Kept(dict[str, str]):
    """What lines before kept; a name whose line failed stays as it is written."""

    def __missing__(self, name: str) -> str:
        return "{" + name + "}"


class Client:
    """What is typed, said to the one client process."""

    def __init__(self, clouds_yaml: Path, place: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(HERE / "openstack_driver.py")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=place,
            env={**os.environ, "OS_CLIENT_CONFIG_FILE": str(clouds_yaml)},
        )  # fmt: skip
        (place / "key.pub").write_text(PUBLIC_KEY)
        (place / "data").write_bytes(b"\0" * 2048)
        (place / "saved").unlink(missing_ok=True)
        self.answer = ""
        self.kept = {"pubkey": str(place / "key.pub"), "data": str(place / "data"), "saved": str(place / "saved")}

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(WAIT_S)
        self._process.stdout.close()

    def say(self, words: list[str]) -> tuple[int, str]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        self.answer = answer["answer"]
        return answer["status"], answer["answer"] + answer["errors"]

    def run(self, text: str, *options: str) -> list[str]:
        """Every line in turn; what did not go as expected."""
        wrong: list[str] = []
        for line in filter(None, map(str.strip, text.splitlines())):
            fails, line = line.startswith("! "), line.removeprefix("! ")
            line, _, unwanted = line.partition(" !~ ")
            line, _, wanted = line.partition(" ~ ")
            name, _, rest = line.partition(" = ")
            line = f"{rest} -f json" if rest else line
            line, wanted, unwanted = (part.format_map(Kept(self.kept)) for part in (line, wanted, unwanted))
            status, assert_all_passed = self._one(line, options)
            if (
                (status != 0) is not fails
                or wanted not in assert_all_passed
                or (unwanted and unwanted in assert_all_passed)
            ):
                wrong.append(f"openstack {line}   (status {status}, looked for {wanted!r})\n{assert_all_passed}")
            elif rest:
                found = json.loads(self.answer)
                found = found[0] if isinstance(found, list) else found
                name, _, field = name.partition(":")
                self.kept[name] = str(found[field] if field else found.get("id") or found["uuid"])
        return wrong

    def _one(self, line: str, options: tuple[str, ...]) -> tuple[int, str]:
        """One line; the client's own `--wait` sleeps for seconds between two looks, ours does not."""
        words = shlex.split(line)
        if words[0] == "wait":
            return self._until(words[1], words[2], options)
        if words[0] == "loses":
            return self._losing(words[1], words[2:], options)
        if words[0] == "is":
            return 0, " ".join(words[1:])
        if "--wait" not in words:
            return self.say([*options, *words])
        words.remove("--wait")
        status, assert_all_passed = self.say([*options, *words])
        answer = self.answer
        if status != 0:
            return status, assert_all_passed
        names = words[2:] if words[1] == "delete" else [word for word in words if word not in {"-f", "json"}][-1:]
        for name in names:
            status, after = self._until("" if words[1] == "delete" else "ACTIVE", name, options)
            assert_all_passed += after
        self.answer = answer
        return status, assert_all_passed

    def _until(self, wanted: str, server: str, options: tuple[str, ...]) -> tuple[int, str]:
        """Look until a server has the wanted status; "" is gone."""
        deadline = time.monotonic() + WAIT_S
        while True:
            status, assert_all_passed = self.say([*options, "server", "show", "-c", "status", "-f", "value", server])
            reached = status != 0 if wanted == "" else wanted in assert_all_passed
            if reached or time.monotonic() > deadline:
                return 0 if reached else 1, assert_all_passed
            time.sleep(0.02)

    def _losing(self, unwanted: str, words: list[str], options: tuple[str, ...]) -> tuple[int, str]:
        """Say it until the answer has a text no more."""
        deadline = time.monotonic() + WAIT_S
        while True:
            status, assert_all_passed = self.say([*options, *words])
            if status != 0 or unwanted not in assert_all_passed or time.monotonic() > deadline:
                return (1 if unwanted in assert_all_passed else status), assert_all_passed
            time.sleep(0.02)


@pytest.fixture(scope="module")
def client(clouds_yaml: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    started = Client(clouds_yaml, tmp_path_factory.mktemp("client"))
    yield started
    started.close()


def assert_all_passed(wrong: list[str]) -> None:
    assert not wrong, "\n\n".join(wrong)


ADMIN = ("--os-cloud", "moorage")
USER = ("--os-cloud", "moorage-demo")


def at(version: str) -> tuple[str, str]:
    return "--os-compute-api-version", version


@pytest.mark.parametrize("version", ["2.1", "2.74", "2.latest"])
def test_servers(client: Client, version: str) -> None:
    assert_all_passed(client.run(script.SERVERS, *USER, *at(version)))
    if version != "2.1":
        assert_all_passed(client.run(script.SERVERS_SINCE_2_17, *USER, *at(version)))


@pytest.mark.parametrize("version", ["2.1", "2.48", "2.latest"])
def test_interfaces(client: Client, version: str) -> None:
    assert_all_passed(client.run(script.INTERFACES, *USER, *at(version)))


def test_interfaces_with_tags(client: Client) -> None:
    assert_all_passed(client.run(script.INTERFACES_SINCE_2_49, *USER, *at("2.latest")))


def test_commands_of_newer_versions(client: Client) -> None:
    assert_all_passed(client.run(script.SERVERS_SINCE_2_74, *ADMIN, *at("2.96")))
    assert_all_passed(client.run(script.HOSTS_SINCE_2_74, *ADMIN, *at("2.96")))


@pytest.mark.parametrize("version", ["2.37", "2.latest"])
def test_hosts_and_flavors(client: Client, version: str) -> None:
    assert_all_passed(client.run(script.LIMITS, *ADMIN, *at(version)))
    assert_all_passed(client.run(script.HOSTS, *ADMIN, *at(version)))


@pytest.mark.skipif("MOORAGE_CLOUDS_YAML" in os.environ, reason="it turns the dials of hosts in our own data directory")
def test_live_migration_commands(client: Client, clouds_yaml: Path) -> None:
    """Of a guest that writes to its memory as fast as it is sent: it is aborted, forced, and left alone."""
    options = (*ADMIN, *at("2.latest"))
    assert_all_passed(client.run(script.BEFORE_LIVE_MIGRATIONS, *options))
    dials = [each / "dials.json" for each in (clouds_yaml.parent / "data" / "hosts").iterdir() if each.is_dir()]
    for verb in ("abort", "force complete"):
        for each in dials:
            each.write_text('{"live_mib_per_s": 64, "live_dirty_mib_per_s": 64}')
        assert_all_passed(client.run("server migrate --live-migration lives", *options))
        deadline = time.monotonic() + WAIT_S
        while "running" not in client.say([*options, "server", "migration", "list", "--server", "lives"])[1]:
            assert time.monotonic() < deadline, client.answer
            time.sleep(0.02)
        assert_all_passed(client.run(getattr(script, f"LIVE_{verb.split()[0].upper()}"), *options))
        for each in dials:
            each.unlink()
    assert_all_passed(client.run(script.LIVE_MIGRATIONS, *options))


@pytest.mark.parametrize("text", ["NETWORK", "IDENTITY", "IMAGE"])
def test_commands_of_the_other_services(client: Client, text: str) -> None:
    assert_all_passed(client.run(getattr(services_script, text), *ADMIN))


@pytest.mark.parametrize("text", ["POOLS_AND_SHARING", "QOS", "ROUTERS", "TRUNKS_AND_SEGMENTS", "GROUPS"])
def test_commands_of_the_network_service(client: Client, text: str) -> None:
    assert_all_passed(client.run(getattr(network_script, text), *ADMIN))


@pytest.mark.parametrize("text", ["VOLUMES", "KINDS", "SITE", "GROUPS"])
def test_commands_of_the_volume_service(client: Client, text: str) -> None:
    assert_all_passed(
        client.run(getattr(volume_script, text), *ADMIN, *at("2.latest"), "--os-volume-api-version", "3.71")
    )


def _owner(version: str, project: str, user: str) -> str:
    """The options that say whose an allocation is; each version has its own."""
    minor = int(version.split(".")[1])
    owner = f"--project-id {project} --user-id {user}" if minor >= 8 else ""
    return f"{owner} --consumer-type VOLUME" if minor >= 38 else owner


@pytest.mark.parametrize(("text", "versions"), [pytest.param(*rest, id=name) for name, *rest in placement.PARTS])
def test_placement(client: Client, text: str, versions: tuple[str, ...]) -> None:
    for version in versions:
        fresh = {name: str(uuid.uuid4()) for name in ("project", "user", "consumer", "other", "agg1", "agg2")}
        client.kept |= fresh | {"owner": _owner(version, fresh["project"], fresh["user"])}
        assert_all_passed(client.run(text, *ADMIN, *at("2.41"), "--os-placement-api-version", version))


def test_no_command_of_osc_placement_is_forgotten() -> None:
    lines = [line.strip().removeprefix("! ") for _, text, _ in placement.PARTS for line in text.splitlines()]
    typed = {line.partition(" = ")[2] or line for line in lines}
    commands = {each.name.replace("_", " ") for each in entry_points(group="openstack.placement.v1")}
    assert len(commands) >= 31
    assert not {command for command in commands if not any(line.startswith(f"{command} ") for line in typed)}


def test_a_plain_user(client: Client) -> None:
    assert_all_passed(client.run(services_script.PLAIN_USER, *USER, *at("2.latest")))
