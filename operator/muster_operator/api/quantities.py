"""Quantities as Kubernetes writes them (resource.Quantity): "10Gi", "1.5G", "500m", "1e3"."""

from __future__ import annotations

import re
from decimal import Decimal

_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:([KMGTPE]i)|([numkMGTPE]?)|[eE]([-+]?[0-9]+))")
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


def parse_quantity(text: str) -> Decimal:
    """The number that a quantity without a sign stands for. Raises ValueError."""
    found = _QUANTITY.fullmatch(text)
    if found is None:
        raise ValueError(f"not a quantity: {text!r}")
    number, binary, decimal, exponent = found.groups()
    if binary:
        return Decimal(number) * Decimal(1024) ** _BINARY[binary]
    return Decimal(number).scaleb(int(exponent) if exponent else _DECIMAL[decimal or ""])
