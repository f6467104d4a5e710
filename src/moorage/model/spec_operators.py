"""A value against an extra spec with an operator, as Nova's scheduler compares them."""

from collections.abc import Callable, Mapping

_TEXT: Mapping[str, Callable[[str, str], bool]] = {
    "<in>": lambda has, wanted: wanted in has,
    "s==": lambda has, wanted: has == wanted,
    "s!=": lambda has, wanted: has != wanted,
    "s<": lambda has, wanted: has < wanted,
    "s<=": lambda has, wanted: has <= wanted,
    "s>": lambda has, wanted: has > wanted,
    "s>=": lambda has, wanted: has >= wanted,
}
_NUMBER: Mapping[str, Callable[[float, float], bool]] = {
    "=": lambda has, wanted: has >= wanted,  # Nova's "=" means "at least"
    "==": lambda has, wanted: has == wanted,
    "!=": lambda has, wanted: has != wanted,
    ">=": lambda has, wanted: has >= wanted,
    "<=": lambda has, wanted: has <= wanted,
}


def satisfies(value: str, wanted: str) -> bool:
    """Tell whether a value is what `wanted` asks: the same text, or an operator and its operands. A number that is none satisfies nothing."""
    operator, *operands = wanted.split() or [""]
    if operator == "<or>":
        return value in operands[::2]
    if operator == "<all-in>":
        return bool(operands) and all(each in value for each in operands)
    if operator in _TEXT:
        return bool(operands) and _TEXT[operator](value, operands[0])
    if operator in _NUMBER:
        return bool(operands) and _compared(_NUMBER[operator], value, operands[0])
    return value == wanted


def _compared(compare: Callable[[float, float], bool], value: str, wanted: str) -> bool:
    try:
        return compare(float(value), float(wanted))
    except ValueError:
        return False
