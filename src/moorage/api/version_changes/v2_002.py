"""2.2: key pairs have a type."""

from moorage.api.microversions import Json, VersionChange

TYPE = ("type",)


def rows_without_type(body: Json) -> Json:
    for each in body["keypairs"]:
        each["keypair"].pop("type", None)
    return body


CHANGE = VersionChange(
    at=(2, 2),
    summary="Key pairs are of type `ssh` or `x509`; making one answers 201 (was 200), deleting one 204 (was 202).",
    refuses={"POST /os-keypairs": {"keypair": TYPE}},
    adds={"POST /os-keypairs": {"keypair": TYPE}, "GET /os-keypairs/{name}": {"keypair": TYPE}},
    response={"GET /os-keypairs": rows_without_type},
    status={"POST /os-keypairs": 200, "DELETE /os-keypairs/{name}": 202},
)
