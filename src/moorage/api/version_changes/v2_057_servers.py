"""2.57: No more files are put into servers (`personality`); a rebuild may bring other user data."""

from moorage.api.microversions import VersionChange

REBUILD_SHOWS_USER_DATA = (2, 57)

CHANGE = VersionChange(
    at=(2, 57),
    summary="No more files are put into servers (`personality`).",
    refuses={"POST /servers/{id}/action:rebuild": {"rebuild": ("user_data",)}},
    refuses_from={
        "POST /servers": {"server": ("personality",)},
        "POST /servers/{id}/action:rebuild": {"rebuild": ("personality",)},
    },
    adds={"POST /servers/{id}/action:rebuild": {"server": ("user_data",)}},
    behaviour=("REBUILD_SHOWS_USER_DATA: to everybody who may rebuild.",),
)
