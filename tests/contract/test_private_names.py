"""Private names of libraries that the source uses: an upgrade that changes one fails here, and says which file uses it."""

import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

NOBODY: Any = None


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
    assert "_io_writer" in vars(TcpTransport()), f"nats TcpTransport._io_writer is gone: {told}"  # type: ignore[no-untyped-call]


def test_oslo_utils_vhdx_guid() -> None:
    from oslo_utils.imageutils.format_inspector import VHDXInspector

    found = VHDXInspector()._guid(bytes(range(16)))
    assert found == "03020100-0504-0706-0809-0A0B0C0D0E0F", (
        f"VHDXInspector._guid answers {found}: model/image_inspection.py compares it with a table's entries"
    )
