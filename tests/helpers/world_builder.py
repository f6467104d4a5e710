"""Provider caches built by hand, for tests of the scheduler."""

from types import SimpleNamespace
from typing import Any

from moorage.model.world import World
from moorage.placement.cache.cache import ProviderCache
from moorage.store.region.placement.change_feed import ProviderChanges


class _Row(SimpleNamespace):
    @property
    def _mapping(self) -> dict[str, Any]:
        return {"class": getattr(self, "resource", None), **self.__dict__}


def _stock(provider: str, resource: str, cap: int, used: int = 0, **portions: int) -> _Row:
    numbers = {"total": cap, "reserved": 0, "ratio": 1.0, "min_unit": 1, "max_unit": cap, "step": 1, "cap": cap}
    numbers |= portions
    return _Row(provider=provider, resource=resource, used=used, version=1, **numbers)


class Cloud:
    """Pictures by hand."""

    def __init__(self) -> None:
        self.rows: dict[str, list[_Row]] = {k: [] for k in ("providers", "whole", "traits", "aggregates", "hosts")}

    def _provider(
        self,
        name: str,
        traits: tuple[str, ...],
        aggregates: tuple[str, ...] = (),
        *,
        parent: str | None = None,
        root: str | None = None,
    ) -> None:
        place = {"parent": parent, "root": root or name}
        self.rows["providers"].append(
            _Row(uuid=name, name=name, **place, generation=1, version=1, changed=1, updated_at=0)
        )
        self.rows["traits"] += [_Row(provider=name, trait=trait) for trait in traits]
        self.rows["aggregates"] += [_Row(provider=name, aggregate=aggregate) for aggregate in aggregates]

    def host(
        self,
        name: str,
        vcpus: int = 8,
        memory: int = 8192,
        *,
        traits: tuple[str, ...] = (),
        wired: tuple[str, ...] = (),
        zone: str = "nova",
        physnets: str | None = None,
        level: int = 3,
        cell: str = "c",
        cell_disabled: bool = False,
        used: int = 0,
        kind: str | None = None,
    ) -> "Cloud":
        self._provider(name, traits, wired)
        self.rows["whole"] += [_stock(name, "VCPU", vcpus), _stock(name, "MEMORY_MB", memory, used)]
        facts = {
            "host": name,
            "node": name + ".local",
            "cell": cell,
            "zone": zone,
            "physnets": physnets,
            "level": level,
            "kind": kind,
            "forced_down": False,
            "cell_disabled": cell_disabled,
        }
        self.rows["hosts"].append(_Row(provider=name, **facts))
        return self

    def stock(self, provider: str, resource: str, total: int, used: int = 0, **portions: int) -> "Cloud":
        """An inventory of a provider that is there."""
        self.rows["whole"].append(_stock(provider, resource, total, used, **portions))
        return self

    def root(self, name: str, *, traits: tuple[str, ...] = (), aggregates: tuple[str, ...] = ()) -> "Cloud":
        """A provider that is no host and below none."""
        self._provider(name, traits, aggregates)
        return self

    def segment(self, name: str, free: int, total: int | None = None) -> "Cloud":
        self._provider(name, (), (name,))
        total = free if total is None else total
        self.rows["whole"].append(_stock(name, "IPV4_ADDRESS", total, total - free))
        return self

    def device(
        self,
        host: str,
        name: str,
        amounts: dict[str, int],
        *,
        below: str | None = None,
        traits: tuple[str, ...] = (),
        aggregates: tuple[str, ...] = (),
        used: int = 0,
        **portions: int,
    ) -> "Cloud":
        """Something below a host, or below something below it; or below another root."""
        self._provider(name, traits, aggregates, parent=below or host, root=host)
        self.rows["whole"] += [_stock(name, resource, cap, used, **portions) for resource, cap in amounts.items()]
        return self

    def picture(self) -> ProviderCache:
        picture = ProviderCache()
        picture.apply(ProviderChanges(1, everything=True, **self.rows))  # type: ignore[arg-type]
        return picture

    def world(self) -> World:
        return self.picture().world()
