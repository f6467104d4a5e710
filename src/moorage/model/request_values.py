"""Values of extra specs and image properties, read as Nova reads them."""

from moorage.model.errors import Invalid

TRUE = frozenset({"1", "t", "true", "on", "y", "yes"})
FALSE = frozenset({"0", "f", "false", "off", "n", "no"})
CPU_MAX = 4096
"""No mask names a processor beyond it."""
DIGITS_MAX = 9


def boolean_of(value: str | None) -> bool:
    """Whether a value switches something on; what is not known does not."""
    return value is not None and value.strip().lower() in TRUE


def is_boolean(value: str) -> bool:
    return value.strip().lower() in TRUE | FALSE


def integer_of(name: str, value: str) -> int:
    """Raises Invalid for what is not a whole number from 0 on."""
    text = value.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > DIGITS_MAX:
        raise Invalid(f"{name} must be a whole number, and is '{value}'.")
    return int(text)


def cpus_of(name: str, text: str) -> set[int]:
    """`0-2,5,^1` as numbers of processors. Raises Invalid for what is not such a list."""
    chosen, without = set[int](), set[int]()
    for part in filter(None, (each.strip() for each in text.split(","))):
        first, _, last = part.removeprefix("^").partition("-")
        low, high = integer_of(name, first), integer_of(name, last or first)
        if low > high or high > CPU_MAX:
            raise Invalid(f"{name}: {part} is not a range of processors.")
        (without if part.startswith("^") else chosen).update(range(low, high + 1))
    return chosen - without
