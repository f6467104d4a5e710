"""Credentials files, keys, certificates and the broker's file: what is accepted and what is refused."""

import base64
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import nkeys
import pytest
from tests.helpers.bus_broker import C1, THIEF, VICTIM, Ear, needs_program, settled

from moorage.bus import nats, subjects
from moorage.bus.broker import KeyOfHost, KeyOfProcess, Keys, configuration
from moorage.bus.permissions import of_agent
from moorage.bus.security import Security, public_key
from moorage.main.bus import main, make_key, write_secret
from moorage.main.local_cluster.certificates import CertificateAuthority
from moorage.main.local_cluster.nats import NatsServer
from moorage.model.errors import Invalid
from moorage_testing.waiting import until

pytestmark = needs_program


# ---- credentials files ------------------------------------------------------------------------------------------------


def _pair(kind: int) -> tuple[Any, str]:
    pair = nkeys.from_seed(bytearray(nkeys.encode_seed(os.urandom(32), kind)))
    return pair, bytes(pair.public_key).decode()


def _signed(claims: dict[str, Any], by: Any, whose: str, subject: str) -> str:
    def part(said: Any) -> str:
        return base64.urlsafe_b64encode(json.dumps(said, separators=(",", ":")).encode()).rstrip(b"=").decode()

    body = {
        "iat": int(time.time()),
        "iss": whose,
        "sub": subject,
        "name": subject[:8],
        "nats": {**claims, "version": 2},
    }
    body["jti"] = base64.b32encode(hashlib.sha256(json.dumps(body).encode()).digest()).rstrip(b"=").decode()
    said = f"{part({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{part(body)}"
    return said + "." + base64.urlsafe_b64encode(by.sign(said.encode())).rstrip(b"=").decode()


async def test_a_credentials_file_works_like_a_key(tmp_path: Path) -> None:
    """The broker's operator signs accounts, they sign users: nothing of a host stands in the server's file."""
    operator, operator_name = _pair(nkeys.PREFIX_BYTE_OPERATOR)
    account, account_name = _pair(nkeys.PREFIX_BYTE_ACCOUNT)
    public = make_key(tmp_path / "seed")
    limits = {"subs": -1, "data": -1, "payload": -1, "conn": -1, "imports": -1, "exports": -1, "wildcards": True}
    allowed = of_agent(C1, THIEF)
    user = _signed(
        {"type": "user", "subs": -1, "data": -1, "payload": -1, "pub": {"allow": list(allowed.publish)}, "sub": {"allow": list(allowed.subscribe)}},
        account, account_name, public,
    )  # fmt: skip
    of_account = _signed({"type": "account", "limits": limits}, operator, operator_name, account_name)
    of_operator = _signed({"type": "operator"}, operator, operator_name, operator_name)
    write_secret(
        tmp_path / "creds",
        f"-----BEGIN NATS USER JWT-----\n{user}\n------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{(tmp_path / 'seed').read_text().strip()}\n------END USER NKEY SEED------\n",
    )
    conf = f"operator: {of_operator}\nresolver: MEMORY\nresolver_preload: {{ {account_name}: {of_account} }}\n"
    with NatsServer(conf=conf) as server:
        bus = await nats.connect([server.url], patience_s=60.0, security=Security(credentials=tmp_path / "creds"))
        try:
            assert bus.healthy
            ear = Ear()
            await bus.subscribe(subjects.to_host(C1, THIEF), ear)
            await bus.publish(subjects.from_host(C1, THIEF, subjects.HEARTBEAT), b"x")
            await settled(bus)
            assert bus.denied == 0
            await bus.publish(subjects.from_host(C1, VICTIM, subjects.HEARTBEAT), b"x")
            await settled(bus)
            await until(lambda: bus.denied == 1)
        finally:
            await bus.close()


# ---- what cannot be meant ----------------------------------------------------------------------------------------------


def test_invalid_keys_and_certificates_are_refused_with_the_reason(tmp_path: Path) -> None:
    make_key(tmp_path / "good")
    (tmp_path / "open").write_text((tmp_path / "good").read_text())
    (tmp_path / "open").chmod(0o640)
    seed = (tmp_path / "good").read_text().strip()
    write_secret(tmp_path / "wrong", seed[:-1] + ("Q" if seed[-1] != "Q" else "A") + "\n")
    write_secret(tmp_path / "short", "SUAB\n")
    authority = CertificateAuthority(tmp_path)
    one, other = authority.issue("one"), authority.issue("other")
    for security, why in (
        (Security(nkey=tmp_path / "good", credentials=tmp_path / "good"), "configure one of them"),
        (Security(nkey=tmp_path / "missing"), "cannot be read: No such file"),
        (Security(nkey=tmp_path / "open"), "chmod 600"),
        (Security(nkey=tmp_path / "short"), "no nkey seed"),
        (Security(ca=authority.file), "say tls = true"),
        (Security(tls=True, cert=one.cert), "belong together"),
        (Security(tls=True, ca=tmp_path / "good"), "no file of certificates"),
        (Security(tls=True, cert=one.cert, key=other.key), "no certificate and its key"),
    ):
        with pytest.raises(Invalid, match=why):
            security.check()
    Security(nkey=tmp_path / "good", tls=True, ca=authority.file, cert=one.cert, key=one.key).check()
    with pytest.raises(Invalid, match="do not fit together"):
        public_key(tmp_path / "wrong")


def test_the_brokers_file_refuses_invalid_and_duplicate_keys(tmp_path: Path) -> None:
    key, other = make_key(tmp_path / "a"), make_key(tmp_path / "b")
    seed = (tmp_path / "a").read_text().strip()
    for keys, why in (
        (Keys(hosts=(KeyOfHost("h", "c", seed),)), "not the public half"),
        (Keys(hosts=(KeyOfHost("h", "c", key[:-1] + ("A" if key[-1] != "A" else "B")),)), "not the public half"),
        (Keys(hosts=(KeyOfHost("h", "c", key), KeyOfHost("i", "c", key))), "one key is that of host h and of host i"),
        (Keys(hosts=(KeyOfHost("h", "c", key), KeyOfHost("h", "d", other))), "host h stands in the list twice"),
        (Keys(processes=(KeyOfProcess("king", key),)), "no role 'king'"),
        (Keys(processes=(KeyOfProcess("agent", key),)), "name both"),
        (Keys(cert="a.pem"), "belong together"),
        (Keys(listen='a"b'), "cannot stand"),
    ):
        with pytest.raises(Invalid, match=why):
            configuration(keys)
    strange = configuration(Keys(hosts=(KeyOfHost('n1"; }\n users', "c>*", key),)))
    assert subjects.token('n1"; }\n users') in strange
    assert "\n users" not in strange


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", str(tmp_path / "keys" / "a.nk")]) == 0
    key = capsys.readouterr().out.strip()
    assert main(["key", str(tmp_path / "keys" / "a.nk")]) == 0
    assert capsys.readouterr().out.strip() == key, "a key that is there stays"
    assert (tmp_path / "keys" / "a.nk").stat().st_mode & 0o777 == 0o600
    (tmp_path / "keys.toml").write_text(
        f'listen = "127.0.0.1:4333"\n[[hosts]]\nhost = "n1"\ncell = "c1"\nkey = "{key}"\n'
    )
    assert main(["config", "--keys", str(tmp_path / "keys.toml")]) == 0
    assert (
        f'nkey: {key}, permissions: {{ publish: {{ allow: ["moorage.cell.c1.from.n1.>"] }}' in capsys.readouterr().out
    )
    assert main(["permissions", "agent", "--cell", "c1", "--host", "n1"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "publish": ["moorage.cell.c1.from.n1.>"],
        "subscribe": ["moorage.cell.c1.host.n1", "moorage.cell.c1.ask.n1.*"],
    }
    assert main(["permissions", "agent"]) == 2
    assert "say --cell and --host" in capsys.readouterr().err
