"""Start the real services, wait until they answer, stop them for certain."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import msgspec

from moorage.main.local_cluster.ports import free_ports
from moorage_testing.real_services.install import install
from moorage_testing.real_services.settings import OURS, Site, write_settings

INSIDE = Path(__file__).parent / "scripts"
START_DEADLINE_S = 300
STOP_DEADLINE_S = 10
COMMAND_DEADLINE_S = 180
PROBE_PAUSE_S = 0.1

HOSTS = {
    "cmp1": ("physnet1",),
    "cmp2": ("physnet1",),
    "cmp3": ("physnet2",),
    "cmp4": ("physnet2",),
    "both1": ("physnet1", "physnet2"),
    **{f"host{number}": ((), ("physnet1",), ("physnet2",))[2 - number % 2] for number in range(1, 9)},
}
"""Hosts on which ports bind, and the physical networks they are wired to. `physnet3` is wired to nobody.

`host1` to `host8` are the simulated hosts of a cloud of ours, wired as it wires them."""

SERVICE_ROLES = ("admin", "service")


@dataclass(frozen=True)
class ServiceLogin:
    """A user who may request a token."""

    user: str
    password: str
    project: str
    user_id: str = ""
    project_id: str = ""


@dataclass
class Stack:
    """The running services."""

    site: Site
    logins: dict[str, ServiceLogin] = field(default_factory=dict[str, ServiceLogin])
    processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict[str, "subprocess.Popen[bytes]"])

    @property
    def identity_url(self) -> str:
        return self.site.identity_url

    @property
    def image_url(self) -> str:
        return f"http://127.0.0.1:{self.site.image_port}"

    @property
    def network_url(self) -> str:
        return f"http://127.0.0.1:{self.site.network_port}"

    @property
    def volume_url(self) -> str:
        """Of Cinder's API; it serves when somebody asked for it (`start_cinder`)."""
        return f"http://127.0.0.1:{self.site.volume_port}"

    @property
    def placement_url(self) -> str:
        return f"http://127.0.0.1:{self.site.placement_port}"

    def token(self, name: str) -> str:
        """A fresh token of one of `logins`."""
        return self.token_of(self.logins[name])

    def token_of(self, login: ServiceLogin) -> str:
        """A fresh token of anybody."""
        domain = {"id": "default"}
        user = {"name": login.user, "domain": domain, "password": login.password}
        body = {
            "auth": {
                "identity": {"methods": ["password"], "password": {"user": user}},
                "scope": {"project": {"name": login.project, "domain": domain}},
            }
        }
        reply = httpx.post(f"{self.identity_url}/auth/tokens", json=body, timeout=30)
        reply.raise_for_status()
        return reply.headers["X-Subject-Token"]

    def stop(self) -> None:
        """End every process this stack started; those that do not listen are killed."""
        for process in self.processes.values():
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + STOP_DEADLINE_S
        for process in self.processes.values():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait(STOP_DEADLINE_S)
        self.processes.clear()


def start_stack(root: Path | None = None, broker: str = "") -> Stack:
    """Install when needed, make the databases, start everything, make the accounts. Raises when anything fails to come up.

    `broker`: the URL of a RabbitMQ, over which Neutron meets agents of its own (neutron_agents.py); then no agents' rows are written.
    """
    python = install()
    root = root or Path(tempfile.mkdtemp(prefix="moorage-real-"))
    shutil.rmtree(root, ignore_errors=True)
    ports = free_ports(7)
    site = Site(root, python.parent.parent, secrets.token_hex(12), *ports, broker=broker)
    write_settings(site)
    stack = Stack(site)
    try:
        # Side by side: each makes its tables, which is most of the start, and needs no other for that.
        with ThreadPoolExecutor(8) as pool:
            tables = (_keystone_tables, _image_tables, _placement_tables, _neutron_tables)
            made = {pool.submit(work, site): work for work in tables}
            ready: list[Future[None]] = []
            for each in as_completed(made):
                each.result()
                # Started by this thread: a process is told to end when the thread that started it does (PR_SET_PDEATHSIG).
                ready.append(pool.submit(_started(stack, made[each])))
            for waited in ready:
                waited.result()
    except BaseException:
        stack.stop()
        raise
    return stack


def _environment(**more: str | Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
    return {
        **kept,
        "PYTHONWARNINGS": "ignore",
        "PYTHONUNBUFFERED": "1",
        **{name: str(value) for name, value in more.items()},
    }


def _command(site: Site, log: str, *words: str | Path) -> None:
    with site.log(log).open("ab") as out:
        done = subprocess.run(
            [str(word) for word in words],
            stdout=out,
            stderr=out,
            env=_environment(),
            timeout=COMMAND_DEADLINE_S,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"{words[0]} failed; the end of {site.log(log)}:\n{_tail(site.log(log))}")


def _tail(path: Path) -> str:
    return path.read_text(errors="replace")[-3000:]


def _started(stack: Stack, tables: Callable[[Site], None]) -> Callable[[], None]:
    """Start the service whose tables were made; the answer waits until it serves."""
    site = stack.site
    if tables is _keystone_tables:
        settings = site.etc("keystone") / "keystone.conf"
        _serve(stack, "keystone", "keystone.wsgi.api", site.identity_port, 4, OS_KEYSTONE_CONFIG_FILES=settings)
        return partial(_identity_ready, stack)
    if tables is _image_tables:
        _serve(stack, "glance", "glance.wsgi.api", site.image_port, 2, OS_GLANCE_CONFIG_DIR=site.etc("glance"))
        return partial(_wait, stack, "glance", stack.image_url)
    if tables is _placement_tables:
        settings = site.etc("placement")
        _serve(stack, "placement", "placement.wsgi.api", site.placement_port, 2, OS_PLACEMENT_CONFIG_DIR=settings)
        return partial(_wait, stack, "placement", stack.placement_url)
    words = ("neutron_with_agents.py", str(site.network_port))
    settings = site.etc("neutron")
    _start(stack, "neutron", words, OS_NEUTRON_CONFIG_DIR=settings, OS_NEUTRON_CONFIG_FILES="neutron.conf;ml2.ini")
    return partial(_wait, stack, "neutron", stack.network_url)


def _identity_ready(stack: Stack) -> None:
    _wait(stack, "keystone", stack.identity_url)
    _make_accounts(stack)


def _keystone_tables(site: Site) -> None:
    manage = (site.venv / "bin" / "keystone-manage", "--config-file", site.etc("keystone") / "keystone.conf")
    _command(site, "keystone-setup", *manage, "db_sync")
    who = ("--keystone-user", str(os.getuid()), "--keystone-group", str(os.getgid()))
    _command(site, "keystone-setup", *manage, "fernet_setup", *who)
    _command(site, "keystone-setup", *manage, "credential_setup", *who)
    url = site.identity_url
    _command(
        site, "keystone-setup", *manage, "bootstrap", "--bootstrap-password", site.password, "--bootstrap-region-id", "RegionOne",
        "--bootstrap-public-url", url, "--bootstrap-internal-url", url, "--bootstrap-admin-url", url,
    )  # fmt: skip


def _image_tables(site: Site) -> None:
    manage = site.venv / "bin" / "glance-manage"
    _command(site, "glance-setup", manage, "--config-file", site.etc("glance") / "glance-api.conf", "db_sync")


def _placement_tables(site: Site) -> None:
    _command(
        site,
        "placement-setup",
        site.venv / "bin" / "placement-manage",
        "--config-dir",
        site.etc("placement"),
        "db",
        "sync",
    )


def _neutron_tables(site: Site) -> None:
    files = ("--config-file", site.etc("neutron") / "neutron.conf", "--config-file", site.etc("neutron") / "ml2.ini")
    rows = {} if site.broker else HOSTS
    hosts = [f"{host}={'+'.join(physnets)}" for host, physnets in rows.items()]
    _command(site, "neutron-setup", site.venv / "bin" / "python", INSIDE / "neutron_tables.py", *files, "--", *hosts)


def start_cinder(stack: Stack) -> None:
    """In addition to the others, for the tests that need it. Raises RuntimeError when it does not come up."""
    if "cinder" in stack.processes:
        return
    site = stack.site
    settings = site.etc("cinder") / "cinder.conf"
    _command(site, "cinder-setup", site.venv / "bin" / "cinder-manage", "--config-file", settings, "db", "sync")
    _start(stack, "cinder", ("cinder_in_one.py", str(site.volume_port), str(settings)))
    _wait(stack, "cinder", stack.volume_url)


def _serve(stack: Stack, name: str, module: str, port: int, threads: int, **environment: str | Path) -> None:
    _start(stack, name, ("serve.py", module, str(port), str(threads)), **environment)


def _start(stack: Stack, name: str, words: Sequence[str], **environment: str | Path) -> None:
    script, *rest = words
    with stack.site.log(name).open("ab") as out:
        stack.processes[name] = subprocess.Popen(
            [str(stack.site.venv / "bin" / "python"), str(INSIDE / script), *rest],
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            env=_environment(**environment),
            start_new_session=True,
        )


def _wait(stack: Stack, name: str, url: str) -> None:
    deadline = time.monotonic() + START_DEADLINE_S
    while time.monotonic() < deadline:
        if stack.processes[name].poll() is not None:
            raise RuntimeError(f"{name} ended; the end of its log:\n{_tail(stack.site.log(name))}")
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(url, timeout=20).status_code < 500:
                return
        time.sleep(PROBE_PAUSE_S)
    raise RuntimeError(f"{name} does not answer at {url}; the end of its log:\n{_tail(stack.site.log(name))}")


def _make_accounts(stack: Stack) -> None:
    """Users, projects and a catalog, by Keystone's own API."""
    admin = ServiceLogin("admin", stack.site.password, "admin")
    with httpx.Client(headers={"X-Auth-Token": stack.token_of(admin)}, timeout=30) as client:
        accounts = _Accounts(client, stack.identity_url)
        stack.logins["admin"] = accounts.described(admin)
        for user in ("neutron", "glance", "placement", "cinder", "moorage"):
            stack.logins[user] = accounts.make(ServiceLogin(user, stack.site.password, "service"), SERVICE_ROLES)
        for user, project, role in (
            ("alice", "harbour", "member"),
            ("bob", "lighthouse", "member"),
            ("rita", "harbour", "reader"),
        ):
            stack.logins[user] = accounts.make(ServiceLogin(user, stack.site.password, project), (role,))
        accounts.service("image", stack.image_url)
        accounts.service("network", stack.network_url)
        for kind in ("volumev3", "block-storage"):
            accounts.service(kind, f"{stack.volume_url}/v3/$(project_id)s")
        accounts.service("placement", stack.placement_url)
        accounts.service("compute", f"http://127.0.0.1:{stack.site.our_compute_port}/v2.1", OURS)
        accounts.service("placement", f"http://127.0.0.1:{stack.site.our_placement_port}/placement", OURS)


class _Accounts:
    def __init__(self, client: httpx.Client, url: str) -> None:
        self._client = client
        self._url = url
        self._roles = {role["name"]: role["id"] for role in self._call("GET", "/roles")["roles"]}

    def _call(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        reply = self._client.request(method, self._url + path, json=body)
        reply.raise_for_status()
        return msgspec.json.decode(reply.content, type=dict[str, Any]) if reply.content else {}

    def _ensure(self, kind: str, name: str, **more: str) -> str:
        found = self._call("GET", f"/{kind}s?name={name}")[f"{kind}s"]
        if found:
            return str(found[0]["id"])
        made = self._client.post(f"{self._url}/{kind}s", json={kind: {"name": name, **more}})
        made.raise_for_status()
        return str(made.json()[kind]["id"])

    def described(self, login: ServiceLogin) -> ServiceLogin:
        user, project = self._ensure("user", login.user), self._ensure("project", login.project)
        return ServiceLogin(login.user, login.password, login.project, user, project)

    def make(self, login: ServiceLogin, roles: tuple[str, ...]) -> ServiceLogin:
        project = self._ensure("project", login.project, domain_id="default")
        user = self._ensure("user", login.user, domain_id="default", password=login.password)
        for role in roles:
            self._call("PUT", f"/projects/{project}/users/{user}/roles/{self._roles[role]}")
        return ServiceLogin(login.user, login.password, login.project, user, project)

    def service(self, kind: str, url: str, region: str = "RegionOne") -> None:
        self._client.post(f"{self._url}/regions", json={"region": {"id": region}})  # 409: it is there
        service = self._ensure("service", kind, type=kind)
        endpoint = {"service_id": service, "interface": "public", "region_id": region, "url": url}
        self._call("POST", "/endpoints", {"endpoint": endpoint})
