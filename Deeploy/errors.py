"""Every error a user can meet: what happened, where, why, and what to do about it.

Errors that come from the model carry one `Problem` per cause, so that all refusals of a model are shown at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of the command line."""

    GOOD = 0
    VALUES_DIFFER = 1
    WRONG_USAGE = 2
    NOT_SUPPORTED = 3
    DOES_NOT_FIT = 4
    TOOL_MISSING = 5
    BAD_RUN = 6
    BOUND_MISSED = 7
    DEFECT = 70


@dataclass(frozen=True)
class Problem:
    """One cause of an error.

    what:   the fact, one sentence without a full stop ("auto_pad SAME_UPPER with dilation is not supported").
    why:    the reason, if it is not obvious.
    remedy: what the user can do.
    node, operator, attribute: where; empty strings if the problem is not about a node.
    """

    what: str
    why: str = ""
    remedy: str = ""
    node: str = ""
    operator: str = ""
    attribute: str = ""

    def __str__(self) -> str:
        where = " ".join(
            part
            for part in (
                f"node '{self.node}'" if self.node else "",
                f"({self.operator})" if self.operator else "",
                f"attribute '{self.attribute}'" if self.attribute else "",
            )
            if part
        )
        text = f"{where}: {self.what}" if where else self.what
        if self.why:
            text += f"; {self.why}"
        if self.remedy:
            text += f". {self.remedy[0].upper()}{self.remedy[1:]}"
        return text


class DeeployError(Exception):
    """Base of all errors shown to users: an exit code and one or more problems."""

    exit_code: ExitCode = ExitCode.DEFECT

    def __init__(self, *problems: Problem | str) -> None:
        self.problems = tuple(p if isinstance(p, Problem) else Problem(p) for p in problems)
        super().__init__("\n".join(str(p) for p in self.problems))


class UsageError(DeeployError):
    """The command line or the files given to it are wrong."""

    exit_code = ExitCode.WRONG_USAGE


class ModelError(DeeployError):
    """The model is not valid or uses something that is not supported."""

    exit_code = ExitCode.NOT_SUPPORTED


class DoesNotFitError(DeeployError):
    """A step or a storage does not fit: names step, tensor, level, bytes needed and bytes given."""

    exit_code = ExitCode.DOES_NOT_FIT


class ToolMissingError(DeeployError):
    """A compiler or a simulator is not installed."""

    exit_code = ExitCode.TOOL_MISSING


class RunError(DeeployError):
    """A generated program did not end well: timeout, trap, sanitizer, race or DMA check."""

    exit_code = ExitCode.BAD_RUN


class DefectError(DeeployError):
    """A defect of this program, found by one of its own checks."""

    exit_code = ExitCode.DEFECT
