"""What a list's query string asks for: filters, operators, sorting and the page."""

from collections.abc import Sequence

import msgspec

from moorage_embedded.http_kit.answers import encode
from moorage_embedded.http_kit.paging import page_url, split_sort
from moorage_embedded.http_kit.values import bounded_number, moment_of
from moorage_embedded.image.faults import bad
from moorage_embedded.image.policy import ImageCaller
from moorage_embedded.image.request import ImageSettings, second
from moorage_embedded.image.store import NUMBERS, WORDS, Condition, ImageQuery

SORT_KEYS = ("name", "status", "container_format", "disk_format", "size", "id", "created_at", "updated_at")
IN_KEYS = frozenset({"name", "id", "status", "container_format", "disk_format"})
OPERATORS = ("gt", "gte", "lt", "lte", "eq", "neq", "in")
TIME_KEYS = frozenset({"created_at", "updated_at"})
FILTERS_MAX = 100
NUMBER_MAX = 2**63 - 1
VISIBILITIES = ("community", "public", "private", "shared", "all")
MEMBER_STATUSES = ("pending", "accepted", "rejected", "all")
Pairs = list[tuple[str, str]]

_decode_id = msgspec.json.Decoder(dict[str, object]).decode


def query_of(pairs: Pairs, who: ImageCaller, settings: ImageSettings) -> ImageQuery:
    """Raises 400 for what cannot be understood."""
    if len(pairs) > FILTERS_MAX:
        raise bad(f"There may be {FILTERS_MAX} query parameters at most.")
    said = dict(pairs)
    asked = said.pop("limit", None)
    limit = settings.page_default if asked is None else bounded_number("limit", asked, settings.page_max)
    query = ImageQuery(who.project, who.everywhere, limit)
    query.marker = said.pop("marker", None)
    query.member_status = said.pop("member_status", "accepted")
    if query.member_status not in MEMBER_STATUSES:
        raise bad(f"Invalid status: {query.member_status}")
    query.visibility = said.pop("visibility", None) or None
    if query.visibility is not None and query.visibility not in VISIBILITIES:
        raise bad(f"Invalid visibility value: {query.visibility}")
    if said.pop("changes-since", None):
        raise bad('The "changes-since" filter is no longer available on v2.')
    query.tags = [value.strip() for name, value in pairs if name == "tag"]
    query.sort = _sort(pairs)
    query.conditions.append(Condition("os_hidden", "eq", _flag("os_hidden", said.pop("os_hidden", "false").lower())))
    for name, value in said.items():
        if name not in {"tag", "sort", "sort_key", "sort_dir"}:
            _filter(query, name, value)
    return query


def _flag(name: str, value: str) -> bool:
    if value not in {"true", "false"}:
        raise bad(f"Invalid value '{value}' for '{name}' filter. Valid values are 'true' or 'false'.")
    return value == "true"


def _number(value: str) -> int:
    try:
        number = int(value)
    except ValueError:
        raise bad("Unable to filter on a range with a non-numeric value.") from None
    return max(-NUMBER_MAX, min(number, NUMBER_MAX))


def _filter(query: ImageQuery, name: str, value: str) -> None:
    root, _, end = name.rpartition("_")
    if root in NUMBERS and end in {"min", "max"}:
        query.conditions.append(Condition(root, "gte" if end == "min" else "lte", _number(value)))
        query.conditions.append(Condition(root, "gte", 0))  # an image without a size is in no range
    elif name in NUMBERS:
        query.conditions.append(Condition(name, "eq", _number(value)))
    elif name == "protected":
        query.conditions.append(Condition(name, "eq", _flag(name, value)))
    elif name in TIME_KEYS:
        operator, rest = _operator(value)
        query.conditions.append(Condition(name, operator, _moment(name, rest)))
    elif name in IN_KEYS:
        operator, rest = _operator(value)
        if operator not in {"in", "eq"}:
            raise bad(f"Unable to filter by unknown operator '{operator}'.")
        query.conditions.append(Condition(name, operator, _values(rest) if operator == "in" else rest))
    elif name in WORDS:
        query.conditions.append(Condition(name, "eq", value))
    else:
        query.properties[name] = value


def _operator(value: str) -> tuple[str, str]:
    """`in:a,b` → in, `a,b`; a value with a colon of its own is no operator."""
    operator, colon, rest = value.partition(":")
    return (operator, rest) if colon and operator in OPERATORS else ("eq", value)


def _moment(name: str, said: str) -> str:
    try:
        return second(moment_of(said))
    except ValueError:
        raise bad(f'Bad "{name}" query filter format. Use ISO 8601 DateTime notation.') from None


def _values(said: str) -> list[str]:
    """Between commas; a value with a comma stands in double quotes."""
    found, word, quoted = [], "", False
    for letter in said:
        if letter == '"':
            quoted = not quoted
        elif letter == "," and not quoted:
            found.append(word)
            word = ""
        else:
            word += letter
    if quoted:
        raise bad(f"Invalid parameter value {said}. The quotes are not closed.")
    return [*found, word]


def _sort(pairs: Pairs) -> list[tuple[str, bool]]:
    """Columns and whether they descend, made unique by birth and id."""
    new = [value for name, value in pairs if name == "sort"]
    keys = [value.strip() for name, value in pairs if name == "sort_key"]
    dirs = [value.strip() for name, value in pairs if name == "sort_dir"]
    if new and (keys or dirs):
        raise bad("Old and new sorting syntax cannot be combined")
    if new:
        keys, dirs = map(list, zip(*split_sort(new[-1]), strict=True))
    if len(dirs) > 1 and len(dirs) != len(keys):
        raise bad("Number of sort dirs does not match the number of sort keys")
    for way in dirs:
        if way not in {"asc", "desc"}:
            raise bad(f"Invalid sort direction: {way}")
    for key in keys:
        if key not in SORT_KEYS:
            names = ", ".join(SORT_KEYS)
            raise bad(f"Invalid sort key: {key}. It must be one of the following: {names}.")
    last = dirs[0] if len(dirs) == 1 else "desc"
    keys = keys or ["created_at"]
    dirs = dirs if len(dirs) == len(keys) else [last] * len(keys)
    order = dict(zip(keys, dirs, strict=True))
    for key in ("created_at", "id"):
        order.setdefault(key, last)
    return [(key, way == "desc") for key, way in order.items()]


def links_of(pairs: Pairs, texts: Sequence[str], limit: int) -> str:
    """The members `first` and `next` of the answer, as JSON text."""
    links = f'"first":{encode(page_url("/v2/images", pairs, None)).decode()}'
    if texts and len(texts) == limit:
        marker = str(_decode_id(texts[-1])["id"])
        links += f',"next":{encode(page_url("/v2/images", pairs, marker)).decode()}'
    return links
