"""Where a process keeps its decisions, and how they are found again."""

from pathlib import Path

from moorage.main.config import Config
from moorage.model.errors import Invalid
from moorage.placement.decisions.recorder import DecisionRecorder, RecorderLimits

DIRECTORY = "decisions"


def open_recorder(config: Config) -> DecisionRecorder | None:
    """None: the operator wants none. Nothing is written before the first decision."""
    settings = config.scheduler
    if not settings.decisions_bytes_max:
        return None
    limits = RecorderLimits(settings.decisions_bytes_max, settings.decisions_age_max_s)
    return DecisionRecorder(config.data / DIRECTORY, multipliers=settings.multipliers, limits=limits)


def directories_of(config: Config, given: list[Path]) -> list[Path]:
    """Those that were named, each a directory of decisions or a data directory that has one; else this configuration's own.

    Raises Invalid.
    """
    directories = [each / DIRECTORY if (each / DIRECTORY).is_dir() else each for each in given] or [
        config.data / DIRECTORY
    ]
    if missing := [str(each) for each in directories if not each.is_dir()]:
        raise Invalid(
            f"there are no decisions in {', '.join(missing)}: name a conductor's data directory with --decisions"
        )
    return directories
