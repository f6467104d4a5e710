"""The past: one `Change` per file, `v2_055.py` for microversion 2.55; together they are the changelog.

`CHANGES` lists them, oldest first.  The list is read from the names of the files, so that two people who add a version
each do not meet in this one; what a version altered for servers stands in a file of its own, `v2_016_servers.py`.
"""

import importlib
import pkgutil

from moorage.api.microversions import VersionChange


def _load() -> tuple[VersionChange, ...]:
    names = sorted(module.name for module in pkgutil.iter_modules(__path__) if module.name.startswith("v2_"))
    changes = tuple(importlib.import_module(f"{__name__}.{name}").CHANGE for name in names)
    for name, change in zip(names, changes, strict=True):
        if "_".join(name.split("_")[:2]) != f"v{change.at[0]}_{change.at[1]:03}":
            raise ImportError(f"past/{name}.py holds the change of {change.version}")
    return changes


CHANGES: tuple[VersionChange, ...] = _load()
