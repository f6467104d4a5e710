"""2.10: an administrator may make, list, show and delete other users' key pairs (`user_id` in the routes' `Params`)."""

from moorage.api.microversions import VersionChange

CHANGE = VersionChange(
    at=(2, 10),
    summary="`user_id` names whose key pairs are meant, in the query and when one is made.",
    refuses={"POST /os-keypairs": {"keypair": ("user_id",)}},
)
