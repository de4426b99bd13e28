"""The state of a project: what is kept between calls, where it begins, and who reads and updates it."""

from __future__ import annotations

from dataclasses import dataclass

from Deeploy.report.index import Index


@dataclass(frozen=True)
class StateRow:
    """A state. bytes: of its storage; home: level.

    given:          the caller gives the first value; otherwise Init loads it.
    file:           in hex/, with the first value: that of Init, or the one that main.c gives; "": main.c gives zeros.
    reads, updates: steps per program that read it and that write it.
    names:          other tensors that are this state, such as the output that it is after its update.
    """

    name: str
    dtype: str
    shape: list[int]
    bytes: int
    home: str
    given: bool
    file: str
    reads: dict[str, int]
    updates: dict[str, int]
    names: list[str]

    @property
    def origin(self) -> str:
        """Where the first value comes from, in words."""
        if not self.bytes:
            return "empty"
        if self.given:
            return "the caller" if self.file else "the caller (main.c: zeros)"
        return "a file"


def state_rows(index: Index) -> list[StateRow]:
    """All state, in the order of the C interface."""
    rows = []
    for state in index.manifest.state:
        tensor, storage = index.tensors[state.tensor], index.storages.get(state.storage)
        rows.append(
            StateRow(
                name=state.source,
                dtype=tensor.dtype,
                shape=tensor.shape,
                bytes=storage.size if storage else 0,
                home=storage.home if storage else "",
                given=state.given,
                file=state.fixture or (storage.file if storage else ""),
                reads=_programs(index, state.storage, False),
                updates=_programs(index, state.storage, True),
                names=[m for m in index.members(storage) if m != state.source] if storage else [],
            )
        )
    return rows


def _programs(index: Index, storage: str, writes: bool) -> dict[str, int]:
    counts: dict[str, int] = {}
    for use in index.uses.get(storage, []):
        if use.writes if writes else use.reads:
            counts[use.program] = counts.get(use.program, 0) + 1
    return counts
