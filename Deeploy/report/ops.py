"""The list of supported operators, made from the declarations."""

from __future__ import annotations

from typing import Any

from Deeploy.operators import load_all
from Deeploy.operators.base import DOMAIN, Operator, all_operators
from Deeploy.platform import load as load_platform


def operators_json(platform: str | None) -> dict[str, Any]:
    """{"platform", "operators": [{"names", "domains", "integer_format", "kernels", "summary"}]}.

    The list is the same for every platform, as the kernels are. Raises UsageError for a platform that is not known.
    """
    load_all()
    if platform is not None:
        load_platform(platform)
    return {"platform": platform, "operators": [_entry(o) for o in all_operators()]}


def _entry(operator: Operator) -> dict[str, Any]:
    domains = ["any"] if operator.domains is None else [d or "ai.onnx" for d in operator.domains]
    return {
        "names": list(operator.names),
        "domains": domains,
        "integer_format": operator.integer_format,
        "kernels": sorted({k.symbol for k in operator.kernels()}),
        "summary": (operator.__doc__ or "").strip().splitlines()[0] if operator.__doc__ else "",
    }


def operators_text(platform: str | None) -> str:
    """One line per operator name. Kernels are the same C on every platform."""
    entries = operators_json(platform)["operators"]
    lines = []
    for entry in entries:
        for name in entry["names"]:
            internal = " (made by passes)" if entry["domains"] == [DOMAIN] else ""
            lines.append(f"{name:28} {entry['summary']}{internal}")
    return "\n".join(sorted(lines))
