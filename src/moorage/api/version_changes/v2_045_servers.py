"""2.45: the id of the image that is made of a server is answered in the body."""

from moorage.api.microversions import VersionChange

IMAGE_IN_THE_BODY = (2, 45)

CHANGE = VersionChange(
    at=(2, 45),
    summary="`createImage` and `createBackup` answer with `image_id`, and no longer with a `Location`.",
    behaviour=("IMAGE_IN_THE_BODY: where the image's id is answered.",),
)
