"""Queries of dashboards and alert rules are PromQL with existing metrics and labels; and the documentation names all of them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from moorage.main.observability.metric_families import FAMILIES, LIBRARY_FAMILIES, samples

DOCS = Path(__file__).parent.parent.parent / "docs" / "operating"
DASHBOARD = DOCS / "grafana" / "moorage.json"
RULES = DOCS / "prometheus" / "rules.yaml"
OF_PROMETHEUS = {"up"}
OF_EVERY_TARGET = {"instance", "job"}
RATES = {"rate", "increase", "irate"}
WANTED = {"MoorageStuckOperations", "MoorageLeaseLost", "MoorageHostSilent", "MoorageBreakerOpen", "MoorageOutboxGrows"}


def panels() -> list[dict[str, Any]]:
    return list(json.loads(DASHBOARD.read_text())["panels"])


def alerts() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    """(where, what is asked)"""
    for panel in panels():
        for target in panel.get("targets", ()):
            yield f"{panel['title']} {target['refId']}", target["expr"].replace("$__rate_interval", "5m")
    for alert in alerts():
        yield alert["alert"], alert["expr"]


LABELS = {sample: {*FAMILIES[name].labels, "le"} for name in FAMILIES for sample in samples(name)}
COUNTING = {sample for name, each in FAMILIES.items() if each.type != "gauge" for sample in samples(name)}


def problems(expression: str) -> list[str]:
    """What Prometheus would not find, or would find nothing in."""
    found: list[str] = []
    names: set[str] = set()
    grouped: set[str] = set()

    def look(part: Any) -> bool:
        match part:
            case promql_parser.VectorSelector():
                names.add(part.name)
                if part.name not in LABELS and part.name not in (*LIBRARY_FAMILIES, *OF_PROMETHEUS):
                    found.append(f"there is no {part.name}")
                known = LABELS.get(part.name, set()) | OF_EVERY_TARGET
                asked = {each.name for each in part.matchers.matchers}
                found.extend(f"{part.name} has no label {label}" for label in sorted(asked - known))
            case promql_parser.Call() if part.func.name in RATES:
                name = part.args[0].vector_selector.name
                if name not in COUNTING and not name.endswith("_total"):
                    found.append(f"{part.func.name} of {name}, which does not count")
            case promql_parser.AggregateExpr() if part.modifier is not None:
                grouped.update(part.modifier.labels)
            case _:
                pass
        return True

    promql_parser.walk(promql_parser.parse(expression), look)
    known = OF_EVERY_TARGET.union(*(LABELS.get(name, set()) for name in names))
    return found + [f"nothing in it has a label {label}" for label in sorted(grouped - known)]


@pytest.mark.parametrize(("where", "asked"), [pytest.param(*each, id=each[0]) for each in expressions()])
def test_every_queried_metric_exists(where: str, asked: str) -> None:
    assert problems(asked) == [], where


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("sum(moorage_no_such_thing)", "there is no"),
        ('moorage_operations{status="stuck"}', "has no label status"),
        ("rate(moorage_hosts[5m])", "does not count"),
        ("sum by (host) (moorage_hosts)", "nothing in it has a label host"),
        ('sum by (cell) (moorage_hosts{state="up"}) / on (cell) sum by (cell) (moorage_hosts)', ""),
    ],
)
def test_the_check_finds_an_error(asked: str, says: str) -> None:
    found = problems(asked)
    assert (says in found[0]) if says else not found


def test_the_dashboard_has_every_family() -> None:
    shown = "\n".join(asked for _, asked in expressions())
    absent = [name for name in FAMILIES if not any(sample in shown for sample in samples(name))]
    assert not absent
    assert len({panel["id"] for panel in panels()}) == len(panels())


def test_every_alert_has_a_description_and_an_action() -> None:
    assert {each["alert"] for each in alerts()} >= WANTED
    for alert in alerts():
        assert alert["labels"]["severity"] in {"critical", "warning"}
        assert alert["annotations"].keys() == {"summary", "meaning", "action"}


def test_the_page_documents_every_family_and_alert() -> None:
    page = (DOCS / "metrics.md").read_text()
    for name, family in FAMILIES.items():
        assert (
            f"| `{name}` | {family.type} | {', '.join(f'`{each}`' for each in family.labels)} | {family.help} |" in page
        )
    assert all(f"`{each['alert']}`" in page for each in alerts())
