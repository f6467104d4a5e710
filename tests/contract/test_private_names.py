"""Private names of libraries that the source uses: an upgrade that changes one fails here, and says which file uses it."""

import ast
import inspect
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import sqlite
from tests.helpers.repository import SOURCE

NOBODY: Any = None
NAMED_TUPLES = "_replace"
OF_PYTHON = "_exit"
"""Public in spite of their names."""


def private_names(module: ast.AST) -> tuple[set[str], set[str]]:
    """The private names that a module uses of others than itself, and those that it makes."""
    used, made = set[str](), set[str]()
    for node in ast.walk(module):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                made.add(name)
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                made.add(name)
            case ast.Attribute(attr=name):
                used.add(name)
            case ast.ImportFrom(level=0, module=str(path), names=names):
                used |= {*path.split("."), *(each.name for each in names)}
            case _:
                pass
    return {each for each in used if re.match("_[a-z]", each)}, made


def test_every_private_name_of_a_library_is_held_here() -> None:
    """A name that our source makes, too, is not seen unless `getattr` asks for it."""
    used, made, got = set[str](), {NAMED_TUPLES, OF_PYTHON}, set[str]()
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        uses, makes = private_names(ast.parse(text))
        used, made = used | uses, made | makes
        got |= set(re.findall(r"""getattr\([^,()]+, "(_[a-z]\w*)\"""", text))
    missing = sorted(each for each in (used - made) | got if not re.search(rf"\b{each}\b", Path(__file__).read_text()))
    assert not missing, f"write a test here that fails when a library changes one of {missing}"


def test_oslo_policy_checks() -> None:
    """api/policy.py, api/policy_file.py and api/placement/policy.py judge parsed rules themselves."""
    from oslo_policy import _checks, _parser

    told = "api/policy.py, api/policy_file.py and api/placement/policy.py use it: follow the change there"
    wanted = {"rule", "target", "creds", "enforcer", "current_rule"}
    assert wanted <= set(inspect.signature(_checks._check).parameters), f"oslo_policy._checks._check: {told}"
    assert isinstance(_parser.parse_rule("!"), _checks.FalseCheck), f"oslo_policy._parser.parse_rule: {told}"
    assert isinstance(_parser.parse_rule("rule:a"), _checks.RuleCheck), f"oslo_policy._checks.RuleCheck: {told}"
    assert isinstance(_parser.parse_rule("not role:a"), _checks.NotCheck), f"oslo_policy._checks.NotCheck: {told}"
    rule = _parser.parse_rule("role:a")
    judged = _checks._check(rule=rule, target={}, creds={"roles": ["a"]}, enforcer=NOBODY, current_rule="x")
    assert judged is True, f"oslo_policy._checks._check judges otherwise: {told}"


def test_uvicorn_types() -> None:
    from uvicorn import _types

    for name in ("ASGIReceiveCallable", "ASGISendCallable", "Scope"):
        assert hasattr(_types, name), f"uvicorn._types.{name} is gone: main/http_answers.py imports it"


def test_uvicorn_protocol() -> None:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

    told = "main/http_protocol.py does its own reading and calls it: follow the change there"
    for name, parameters in {"_should_upgrade": ["self"], "_start_asgi_task": ["self", "cycle", "app"]}.items():
        method = getattr(HttpToolsProtocol, name, None)
        assert method is not None, f"uvicorn HttpToolsProtocol.{name} is gone: {told}"
        assert list(inspect.signature(method).parameters) == parameters, f"uvicorn HttpToolsProtocol.{name}: {told}"


def test_oslo_messaging_sends() -> None:
    transport = pytest.importorskip("oslo_messaging.transport").Transport
    parameters = list(inspect.signature(transport._send_notification).parameters)
    assert parameters == ["self", "target", "ctxt", "message", "version", "retry"], (
        f"oslo.messaging Transport._send_notification takes {parameters}: bus/notifications.py sends each message with it"
    )


def test_sqlalchemy_result_columns() -> None:
    table = sa.Table("t", sa.MetaData(), sa.Column("a", sa.DateTime()))
    compiled = sa.select(table).compile(dialect=sqlite.dialect())
    columns = getattr(compiled, "_result_columns", None) or ()
    assert [each.type for each in columns] == [table.c.a.type], (
        "SQLCompiler._result_columns changed: sql/prepared.py makes converters of it, by `type` in the order of columns"
    )


def test_alembic_upgrade_revisions() -> None:
    from alembic.script import ScriptDirectory

    parameters = list(inspect.signature(ScriptDirectory._upgrade_revs).parameters)
    assert parameters[:3] == ["self", "destination", "current_rev"], (
        f"ScriptDirectory._upgrade_revs takes {parameters}: sql/migrate.py gives it the destination and the revision"
    )


def test_sqlalchemy_returning() -> None:
    table = sa.Table("t", sa.MetaData(), sa.Column("a", sa.Integer))
    held = [bool(getattr(each, "_returning", ())) for each in (table.insert(), table.insert().returning(table.c.a))]
    assert held == [False, True], "Insert._returning changed: sql/prepared.py tells by it which statements return rows"


def test_asyncpg_transport() -> None:
    connection = pytest.importorskip("asyncpg.connection").Connection
    assert "_transport" in connection.__slots__, (
        "asyncpg Connection._transport is gone: sql/postgresql.py sets keepalives of its socket, or none without it"
    )


def test_thread_pools_queue() -> None:
    with ThreadPoolExecutor(1) as pool:
        size = getattr(getattr(pool, "_work_queue", None), "qsize", lambda: None)()
        assert size == 0, "ThreadPoolExecutor._work_queue changed: sql/sqlite.py counts waiting reads by its qsize()"


def test_nats_connect_command() -> None:
    from nats.aio.client import Client
    from nats.aio.transport import TcpTransport

    told = "bus/nats.py refuses unencrypted servers by it: follow the change there, or TLS is no longer required"
    assert callable(getattr(Client, "_connect_command", None)), f"nats Client._connect_command is gone: {told}"
    assert not inspect.iscoroutinefunction(Client._connect_command), f"nats Client._connect_command is async: {told}"
    assert "_transport" in vars(Client()), f"nats Client._transport is gone: {told}"
    assert "_reading_task" in vars(Client()), (
        "nats Client._reading_task is gone: bus/nats.py takes a client without a reader for one that is not connected"
    )
    assert "_io_writer" in vars(TcpTransport()), f"nats TcpTransport._io_writer is gone: {told}"  # type: ignore[no-untyped-call]


def test_oslo_utils_vhdx_guid() -> None:
    from oslo_utils.imageutils.format_inspector import VHDXInspector

    found = VHDXInspector()._guid(bytes(range(16)))
    assert found == "03020100-0504-0706-0809-0A0B0C0D0E0F", (
        f"VHDXInspector._guid answers {found}: model/image_inspection.py compares it with a table's entries"
    )
