"""Writes `clouds.yaml`, so that `OS_CLOUD=moorage openstack …` works in the directory where the cloud was started."""

import json
from pathlib import Path

from moorage.model.private_files import private_file

ADMIN = "moorage"
DEMO = "moorage-demo"

TEMPLATE = """\
# Written by `moorage up`; the passwords are those of its embedded identity service.
clouds:
  {admin}:
    auth:
      auth_url: {auth_url}
      username: admin
      password: {admin_password}
      project_name: admin
      user_domain_name: Default
      project_domain_name: Default
    region_name: {region}
    identity_api_version: 3{cacert}
  {demo}:
    auth:
      auth_url: {auth_url}
      username: demo
      password: {demo_password}
      project_name: demo
      user_domain_name: Default
      project_domain_name: Default
    region_name: {region}
    identity_api_version: 3{cacert}
"""
MARK = "# Written by `moorage up`"


def write_clouds(
    directory: Path, *, auth_url: str, region: str, admin_password: str, demo_password: str, ca_file: str = ""
) -> tuple[Path, bool]:
    """Write the file, unless there is one that Moorage did not write. Returns its path, and whether it was written."""
    path = directory / "clouds.yaml"
    if path.exists() and not path.read_text().startswith(MARK):
        return path, False
    text = TEMPLATE.format(
        admin=ADMIN,
        demo=DEMO,
        auth_url=auth_url,
        region=region,
        admin_password=admin_password,
        demo_password=demo_password,
        cacert=f"\n    cacert: {json.dumps(ca_file)}" if ca_file else "",
    )
    private_file(path).write_text(text)
    return path, True
