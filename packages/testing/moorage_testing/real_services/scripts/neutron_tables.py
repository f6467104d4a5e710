"""Make Neutron's tables on SQLite and the rows that would otherwise come from migrations and agents.

    neutron_tables.py --config-file neutron.conf --config-file ml2.ini -- HOST=PHYSNET[+PHYSNET]…

Neutron's migrations are written for MySQL and PostgreSQL, so here the tables come from its models.
"""
# mypy: ignore-errors
# pyright: basic, reportMissingImports=false, reportOptionalSubscript=false

import datetime
import json
import sys
import uuid

from oslo_service import backend

backend.init_backend(backend.BackendType.THREADING)  # before Neutron is imported, or it takes eventlet

import sqlalchemy as sa  # noqa: E402
from neutron.api.rpc.callbacks import resources  # noqa: E402
from neutron.common import config  # noqa: E402
from neutron.db.migration.models import head  # noqa: E402
from oslo_config import cfg  # noqa: E402
from oslo_db import options  # noqa: E402

FOR_EVER = datetime.datetime(2999, 1, 1)  # noqa: DTZ001  Neutron's column holds naive UTC
KBPS = 10_000_000


def agent_row(host: str, physnets: list[str]) -> dict[str, object]:
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None)
    bridges = {physnet: f"br-{physnet}" for physnet in physnets}
    configuration = {
        "bridge_mappings": bridges,
        "integration_bridge": "br-int",
        "tunnel_types": ["vxlan"],
        "tunneling_ip": "127.0.0.1",
        "l2_population": False,
        "datapath_type": "system",
        "ovs_hybrid_plug": False,
        "extensions": ["qos"],
        "resource_provider_bandwidths": {bridge: {"egress": KBPS, "ingress": KBPS} for bridge in bridges.values()},
        "resource_provider_hypervisors": dict.fromkeys(bridges.values(), host),
        "resource_provider_inventory_defaults": {"allocation_ratio": 1.0, "min_unit": 1, "step_size": 1, "reserved": 0},
    }
    return {
        "id": str(uuid.uuid4()),
        "agent_type": "Open vSwitch agent",
        "binary": "neutron-openvswitch-agent",
        "topic": "N/A",
        "host": host,
        "admin_state_up": True,
        "created_at": now,
        "started_at": now,
        "heartbeat_timestamp": FOR_EVER,
        "configurations": json.dumps(configuration),
        "resource_versions": json.dumps(resources.LOCAL_RESOURCE_VERSIONS),
        "load": 0,
    }


def default_rules(db: sa.Connection, meta: sa.MetaData) -> None:
    """The rules a new project's default security group starts with; a migration writes them elsewhere."""
    rules, standard = meta.tables["securitygroupdefaultrules"], meta.tables["standardattributes"]
    if db.execute(sa.select(sa.func.count()).select_from(rules)).scalar():
        return
    for direction in ("egress", "ingress"):
        for ethertype in ("IPv4", "IPv6"):
            attribute = standard.insert().values(resource_type="default_security_group_rules", revision_number=0)
            db.execute(
                rules.insert().values(
                    id=str(uuid.uuid4()),
                    direction=direction,
                    ethertype=ethertype,
                    standard_attr_id=db.execute(attribute).inserted_primary_key[0],
                    used_in_default_sg=True,
                    used_in_non_default_sg=direction == "egress",
                    remote_group_id="PARENT" if direction == "ingress" else None,
                )
            )


def main() -> None:
    split = sys.argv.index("--")
    config.register_common_config_options()
    options.set_defaults(cfg.CONF)
    config.init(sys.argv[1:split])
    engine = sa.create_engine(cfg.CONF.database.connection)
    meta = head.get_metadata()
    meta.create_all(engine)
    agents = meta.tables["agents"]
    with engine.connect() as raw:
        raw.execute(sa.text("PRAGMA journal_mode=WAL"))
    with engine.begin() as db:
        have = {host for (host,) in db.execute(sa.select(agents.c.host))}
        for pair in sys.argv[split + 1 :]:
            host, _, physnets = pair.partition("=")
            if host not in have:
                db.execute(agents.insert().values(**agent_row(host, physnets.split("+"))))
        default_rules(db, meta)


if __name__ == "__main__":
    main()
