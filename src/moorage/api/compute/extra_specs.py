"""`/flavors/{id}/os-extra_specs`: what a flavor asks of a host, by name."""

import re

from moorage.api.call import AnyCall, Call, Response
from moorage.api.compute.extra_spec_validators import check_spec
from moorage.api.compute.flavors import find
from moorage.api.routes import Route
from moorage.api.schema import Body
from moorage.api.timestamps import now_us
from moorage.api.version_changes import v2_086
from moorage.model.errors import Invalid, NotFound
from moorage.operations.records import flavors as writes

RULE = "os_compute_api:os-flavor-extra-specs:"
NAME_FORM = re.compile(r"^[a-zA-Z0-9-_:. ]{1,255}$")
VALUE_MAX_CHARS = 255


class SpecsBody(Body):
    extra_specs: dict[str, str | int | float]


def _checked(call: AnyCall, specs: dict[str, str | int | float]) -> dict[str, str]:
    """Names and values as text.  Raises Invalid; from 2.86 on also for known names with impossible values."""
    texts: dict[str, str] = {}
    for name, value in specs.items():
        if not NAME_FORM.match(name):
            raise Invalid(
                f"Invalid input for field/attribute extra_specs. Value: {specs}. Additional properties are not allowed "
                f"('{name}' was unexpected)"
            )
        text = str(value)
        if isinstance(value, bool) or len(text) > VALUE_MAX_CHARS:
            reason = "is too long" if len(text) > VALUE_MAX_CHARS else "is not of type 'string', 'number'"
            raise Invalid(f"Invalid input for field/attribute {name}. Value: {text[:300]}. {text[:300]!r} {reason}")
        if call.version >= v2_086.KNOWN_SPECS_CHECKED:
            check_spec(name, text)
        texts[name] = text
    return texts


async def index(call: Call[None]) -> Response:
    flavor = await find(call, call.path["id"])
    return Response(body={"extra_specs": dict(flavor.extra_specs)})


async def create(call: Call[SpecsBody]) -> Response:
    call.require(RULE + "create", {})
    texts = _checked(call, call.body.extra_specs)
    await writes.set_specs(call.context.region, call.path["id"], texts, now_us(call.context.clock))
    return Response(body={"extra_specs": call.body.extra_specs})


async def update(call: Call[dict[str, str | int | float]]) -> Response:
    """Set one extra spec of a flavor. Raises Invalid when the body has not exactly the key of the path."""
    if len(call.body) != 1:
        few = "does not have enough properties" if not call.body else "has too many properties"
        raise Invalid(f"{call.body} {few}")
    call.require(RULE + "update", {})
    texts = _checked(call, call.body)
    if call.path["name"] not in call.body:
        raise Invalid("Request body and URI mismatch")
    await writes.set_specs(call.context.region, call.path["id"], texts, now_us(call.context.clock))
    return Response(body=call.body)


async def show(call: Call[None]) -> Response:
    """Show one extra spec of a flavor. Raises NotFound when the flavor does not have it."""
    flavor = await find(call, call.path["id"])
    name = call.path["name"]
    if name not in flavor.extra_specs:
        raise NotFound(f"Flavor {flavor.id} has no extra specs with key {name}.")
    return Response(body={name: flavor.extra_specs[name]})


async def delete(call: Call[None]) -> Response:
    call.require(RULE + "delete", {})
    await writes.drop_spec(call.context.region, call.path["id"], call.path["name"], now_us(call.context.clock))
    return Response(200)


ROUTES = (
    Route("GET", "/flavors/{id}/os-extra_specs", index, rule=RULE + "index"),
    Route("POST", "/flavors/{id}/os-extra_specs", create, takes=SpecsBody),
    Route("GET", "/flavors/{id}/os-extra_specs/{name}", show, rule=RULE + "show"),
    Route("PUT", "/flavors/{id}/os-extra_specs/{name}", update, takes=dict[str, str | int | float]),
    Route("DELETE", "/flavors/{id}/os-extra_specs/{name}", delete),
)
