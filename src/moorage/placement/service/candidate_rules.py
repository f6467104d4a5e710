"""The parameters of a request for allocation candidates, besides its groups."""

from dataclasses import dataclass

from moorage.model.provider_tree import SearchRules


@dataclass(frozen=True)
class CandidateRules(SearchRules):
    """The parameters of the request as a whole."""

    limit: int | None = None
    """The number of wanted candidates; None: all."""
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
