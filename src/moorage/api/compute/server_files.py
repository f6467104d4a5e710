"""Files that are put into a guest when it is made (`personality`, below 2.57), within the project's limits."""

from collections.abc import Sequence

from moorage.api.call import AnyCall
from moorage.api.compute.server_bodies import WantedFile, checked_base64
from moorage.model.guest import InjectedFile
from moorage.model.quota import count_limit
from moorage.store.region.quotas import both_limits


async def files_of(call: AnyCall, wanted: Sequence[WantedFile]) -> tuple[InjectedFile, ...]:
    """Return the files in the form of messages. Raises Invalid (not base64) and OverQuota, with Nova's messages."""
    if not wanted:
        return ()
    for each in wanted:
        checked_base64(each.contents, "contents")
    user, project, config = call.principal.user, call.project, await call.context.limits_of(call.project)
    most = await call.context.region.read(lambda tx: both_limits(tx, project, user, config))
    if over := count_limit(config, "injected_files", most).excess(len(wanted), "Personality file limit exceeded"):
        raise over
    for what, longest in (
        ("path", max(len(each.path.encode()) for each in wanted)),
        ("content", max(len(each.contents) for each in wanted)),
    ):
        limit = count_limit(config, f"injected_file_{what}_bytes", most)
        if over := limit.excess(longest, f"Personality file {what} exceeds maximum {limit.limit}"):
            raise over
    return tuple(InjectedFile(each.path, each.contents) for each in wanted)
