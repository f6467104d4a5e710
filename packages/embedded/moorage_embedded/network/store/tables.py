"""Tables: nouns are documents; what must be unique, counted or found fast has a column or a table of its own."""

from pathlib import Path

import sqlalchemy as sa

from moorage.sql.migrate import Tree

metadata = sa.MetaData()
TABLES = Tree("embedded_network", metadata, Path(__file__).parent / "revisions")

records = sa.Table(
    "network_records",
    metadata,
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("noun", sa.String(40), nullable=False),
    sa.Column("project", sa.String(255), nullable=False),
    sa.Column("parent", sa.String(64), nullable=False),
    sa.Column("key", sa.String(300), nullable=False),
    sa.Column("doc", sa.Text, nullable=False),
    sa.Index("network_records_by_parent", "parent", "noun"),
    sa.Index("network_records_by_project", "noun", "project"),
    sa.Index("network_records_by_key", "noun", "key"),
)

ports = sa.Table(
    "network_ports",
    metadata,
    sa.Column("id", sa.String(36), primary_key=True),
    sa.Column("project", sa.String(255), nullable=False),
    sa.Column("network", sa.String(36), nullable=False),
    sa.Column("mac", sa.String(17), nullable=False),
    sa.Column("device", sa.String(255), nullable=False),
    sa.Column("owner", sa.String(255), nullable=False),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("doc", sa.Text, nullable=False),
    sa.UniqueConstraint("network", "mac", name="network_ports_mac"),
    sa.Index("network_ports_by_project", "project"),
    sa.Index("network_ports_by_device", "device"),
    sa.Index("network_ports_by_host", "host"),
)

addresses = sa.Table(
    "network_addresses",
    metadata,
    sa.Column("subnet", sa.String(36), primary_key=True),
    sa.Column("address", sa.String(39), primary_key=True),
    sa.Column("port", sa.String(36), nullable=False),
    sa.Index("network_addresses_by_port", "port"),
    sa.Index("network_addresses_by_address", "address"),
)

free_ranges = sa.Table(
    "network_free_ranges",
    metadata,
    sa.Column("subnet", sa.String(36), primary_key=True),
    # Offsets from the subnet's own address.  No two ranges of a subnet overlap, so the first alone is a key.
    sa.Column("first", sa.BigInteger, primary_key=True),
    sa.Column("last", sa.BigInteger, nullable=False),
)

holds = sa.Table(
    "network_holds",
    metadata,
    sa.Column("scope", sa.String(120), primary_key=True),
    sa.Column("value", sa.String(255), primary_key=True),
    sa.Column("owner", sa.String(100), nullable=False),
    sa.Index("network_holds_by_owner", "owner"),
)

shares = sa.Table(
    "network_shares",
    metadata,
    sa.Column("object", sa.String(36), primary_key=True),
    sa.Column("action", sa.String(40), primary_key=True),
    sa.Column("target", sa.String(255), primary_key=True),
    sa.Column("noun", sa.String(40), nullable=False),
    sa.Index("network_shares_by_target", "noun", "target"),
)

usage = sa.Table(
    "network_usage",
    metadata,
    sa.Column("project", sa.String(255), primary_key=True),
    sa.Column("noun", sa.String(40), primary_key=True),
    sa.Column("used", sa.BigInteger, nullable=False),
    # The project's own limit; null is the default, negative is none.
    sa.Column("cap", sa.BigInteger, nullable=True),
)
