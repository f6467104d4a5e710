"""The names that Nova publishes, from an unpacked source archive of it (`pip download --no-deps --no-binary :all: nova==34.0.0`).

    python -m moorage_testing.nova_names nova-34.0.0 > tests/golden/nova_names.json

Only names are kept.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path


def names_of(root: Path) -> dict[str, list[str]]:
    """Return the names, by kind."""
    api = root / "nova/api"
    schemas = api / "openstack/compute/schemas"
    return {
        "extra_specs": sorted(set(_extra_specs(api / "validation/extra_specs"))),
        "image_properties": sorted(set(_image_properties(root / "nova/objects/image_meta.py"))),
        "hints": sorted(_keys(schemas / "servers.py", "_hints")),
        "block_device": sorted(
            _keys(schemas / "servers.py", "_block_device_mapping_v2_new_item")
            | _keys(schemas / "servers.py", "_legacy_block_device_mapping")
        ),
        "vnic_types": sorted(
            re.findall(r"^VNIC_TYPE_\w+ = ['\"]([\w-]+)", (root / "nova/network/model.py").read_text(), re.MULTILINE)
        ),
        "quotas": sorted(_keys(schemas / "quota_sets.py", "_quota_resources")),
    }


def _extra_specs(directory: Path) -> Iterator[str]:
    for file in sorted(directory.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.keyword) and node.arg == "name":
                yield ast.unparse(node.value).lstrip("f").strip("'\"").replace("{{", "{").replace("}}", "}")


def _image_properties(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            target = ast.unparse(node.targets[0])
            if target in {"fields", "_legacy_property_map"}:
                names = [str(each.value) for each in node.value.keys if isinstance(each, ast.Constant)]
                yield from names if "hw_disk_bus" in names or target != "fields" else ()


def _keys(file: Path, variable: str) -> set[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Dict)
            and ast.unparse(node.targets[0]) == variable
        ):
            value = ast.literal_eval(_without_calls(node.value))
            return set(value.get("properties", value))
    raise SystemExit(f"{file} has no {variable}")


def _without_calls(node: ast.Dict) -> ast.Dict:
    """The dict with its keys, and of its values only dicts."""
    values = [_without_calls(each) if isinstance(each, ast.Dict) else ast.Constant(None) for each in node.values]
    kept = [(key, value) for key, value in zip(node.keys, values, strict=True) if isinstance(key, ast.Constant)]
    return ast.Dict([key for key, _ in kept], [value for _, value in kept])


if __name__ == "__main__":
    sys.stdout.write(json.dumps(names_of(Path(sys.argv[1])), indent=1) + "\n")
