"""TLS to PostgreSQL: the parameters of a URL, and real connections through a TLS proxy in front of the suite's server."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
import sqlalchemy as sa

from moorage.main.local_cluster.certificates import CertificateAuthority
from moorage.model.errors import Invalid, Unavailable
from moorage.sql import Database, open_database
from moorage.sql.limits import DatabaseLimits
from moorage.sql.postgresql_tls import take_tls

SSL_REQUEST = 80877103


@asynccontextmanager
async def with_tls(port: int, context: ssl.SSLContext, seen: list[str]) -> AsyncIterator[int]:
    """The port of a server that takes TLS as PostgreSQL does, and hands on what is in it."""
    both: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = await reader.readexactly(8)
        inner, outer = await asyncio.open_connection("127.0.0.1", port)
        if int.from_bytes(first[4:]) == SSL_REQUEST:
            writer.write(b"S")
            try:
                await writer.start_tls(context)
            except (OSError, EOFError):  # it does not trust us
                outer.close()
                return
            seen.append(writer.get_extra_info("ssl_object").version())
        else:
            seen.append("plain")
            outer.write(first)
        both.update({asyncio.create_task(pump(reader, outer)), asyncio.create_task(pump(inner, writer))})

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await asyncio.gather(*both, return_exceptions=True)


async def one(url: str) -> int:
    database: Database = await open_database(url, name="region", limits=DatabaseLimits(connect_s=5))
    try:
        return int(await database.read(lambda tx: tx.scalar(sa.text("SELECT 1"))))
    finally:
        await database.close()


@pytest.mark.postgres
async def test_a_database_is_reached_with_tls(postgres_url: str, tmp_path: Path) -> None:
    authority = CertificateAuthority(tmp_path / "ca")
    made = authority.issue("server")
    stranger = CertificateAuthority(tmp_path / "another").file
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)
    at = sa.make_url(postgres_url)
    seen: list[str] = []
    async with with_tls(at.port or 0, context, seen) as port:
        url = at.set(port=port).render_as_string(hide_password=False)
        for asked, tls in (
            ("sslmode=disable", False),
            ("sslmode=require", True),
            (f"sslmode=verify-ca&sslrootcert={authority.file}", True),
            (f"sslmode=verify-full&sslrootcert={authority.file}", True),
            (f"sslrootcert={authority.file}", True),
        ):
            seen.clear()
            assert await one(f"{url}?{asked}") == 1
            assert set(seen) == {"TLSv1.3" if tls else "plain"}, asked
        seen.clear()
        for asked in (f"sslmode=verify-full&sslrootcert={stranger}", f"sslmode=require&sslrootcert={stranger}"):
            with pytest.raises(Unavailable, match="shows a certificate that is not trusted"):
                await one(f"{url}?{asked}")
        assert "plain" not in seen


def test_tls_parameters_of_a_url(tmp_path: Path) -> None:
    def said(query: str) -> object:
        url, arguments = take_tls(sa.make_url(f"postgresql://u@db/region?{query}"), "region")
        assert not {"sslmode", "sslrootcert", "sslcert", "sslkey"} & set(url.query)
        return arguments.get("ssl")

    assert said("application_name=x") is None
    assert said("sslmode=prefer") == "prefer"
    required, full = said("sslmode=require"), said("sslmode=verify-full&sslrootcert=system")
    assert isinstance(required, ssl.SSLContext)
    assert isinstance(full, ssl.SSLContext)
    assert (required.verify_mode, required.check_hostname) == (ssl.CERT_NONE, False)
    assert (full.verify_mode, full.check_hostname) == (ssl.CERT_REQUIRED, True)
    for query, why in (
        ("sslmode=sure", "sslmode is one of disable, allow"),
        ("sslmode=prefer&sslrootcert=/ca.pem", "does not check"),
        (f"sslmode=verify-full&sslrootcert={tmp_path}/absent.pem", "cannot be read"),
    ):
        with pytest.raises(Invalid, match=why):
            said(query)
