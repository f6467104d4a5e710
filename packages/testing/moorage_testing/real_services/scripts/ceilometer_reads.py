"""Run in an environment with the real Ceilometer: notifications in, one JSON object a line; its events and samples out.

What it makes of them is decided by its own definitions, which come with it.
"""
# mypy: ignore-errors
# pyright: basic, reportMissingImports=false

import datetime
import json
import sys
from typing import Any

from ceilometer import service
from ceilometer.event import converter
from ceilometer.meter import notifications
from stevedore import extension


class _Nothing:
    """Stands for the manager that meters are given and ask for nothing while they build samples."""


def main() -> None:
    conf = service.prepare_service(["ceilometer"], [])
    plugins = extension.ExtensionManager(namespace="ceilometer.event.trait_plugin")
    events = converter.setup_events(conf, plugins)
    meters = notifications.ProcessMeterNotifications(conf, _Nothing())
    for line in sys.stdin:
        told = json.loads(line)
        told["metadata"] = {"message_id": told["message_id"], "timestamp": told["timestamp"]}
        event = events.to_event(told["priority"].lower(), dict(told))
        samples = list(meters.build_sample(dict(told)))
        answer: dict[str, Any] = {
            "event_type": event.event_type,
            "message_id": event.message_id,
            "traits": {trait.name: trait.value for trait in event.traits},
            "samples": {sample.name: sample.volume for sample in samples},
            "resources": sorted({sample.resource_id for sample in samples}),
        }
        sys.stdout.write(json.dumps(answer, default=datetime.datetime.isoformat) + "\n")


if __name__ == "__main__":
    main()
