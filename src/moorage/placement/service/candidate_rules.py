"""What a request for allocation candidates asks, besides its groups."""

from dataclasses import dataclass

from moorage.model.provider_tree import SearchRules


@dataclass(frozen=True)
class CandidateRules(SearchRules):
    """What concerns the request as a whole."""

    limit: int | None = None
    """Candidates wanted; None: all of them."""
    root_required: frozenset[str] = frozenset()
    root_forbidden: frozenset[str] = frozenset()
