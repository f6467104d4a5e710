"""Files that are put into a guest when it is made (`personality`, below 2.57), within the project's limits."""

from collections.abc import Sequence

from moorage.api.call import AnyCall
from moorage.api.compute.server_bodies import WantedFile, checked_base64
from moorage.model.errors import OverQuota
from moorage.model.guest import InjectedFile
from moorage.store.region.quotas import both_limits


async def files_of(call: AnyCall, wanted: Sequence[WantedFile]) -> tuple[InjectedFile, ...]:
    """Return the files in the form of messages. Raises Invalid (not base64) and OverQuota, with Nova's messages."""
    if not wanted:
        return ()
    for each in wanted:
        checked_base64(each.contents, "contents")
    user, project, config = call.principal.user, call.project, call.context.config.quotas
    most = await call.context.region.read(lambda tx: both_limits(tx, project, user, config))
    if 0 <= most["injected_files"] < len(wanted):
        raise OverQuota("Personality file limit exceeded")
    for limit, longest, what in (
        (most["injected_file_path_bytes"], max(len(each.path.encode()) for each in wanted), "path"),
        (most["injected_file_content_bytes"], max(len(each.contents) for each in wanted), "content"),
    ):
        if 0 <= limit < longest:
            raise OverQuota(f"Personality file {what} exceeds maximum {limit}")
    return tuple(InjectedFile(each.path, each.contents) for each in wanted)
