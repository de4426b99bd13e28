#!/usr/bin/env python3
"""Runs the corpus over a matrix of options and reports every combination that is not right.

The full matrix (hours): every network and edge case, stored and random inputs, L1 sizes, buffering, homes, core counts.
`--sample` is the part that continuous integration runs (minutes). Needs ../shared/corpus.

usage: corpus_matrix.py [--sample] [--only TEXT] [--jobs N] [--log FILE]
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from Deeploy.compiler import Options
from Deeploy.errors import DeeployError, ExitCode
from Deeploy.simulate.run import RunOptions, run_each

ROOT = Path(__file__).resolve().parent.parent
CORPUS = ROOT.parent / "shared/corpus"
MODELS = CORPUS / "deeploy/Models"
NETWORKS = (
    "MLPerf/ImageClassification",
    "MLPerf/KeywordSpotting",
    "MLPerf/AnomalyDetection",
    "miniMobileNet",
    "CNN_Linear1",
    "CNN_Linear2",
    "EEGFormer",
    "CCT/FP32/CCT_1_16_16_32",
    "CCT/FP32/CCT_1_16_16_64",
    "CCT/FP32/CCT_1_16_16_128",
    "CCT/FP32/CCT_1_32_32_8",
    "CCT/FP32/CCT_1_32_32_32",
    "CCT/FP32/CCT_2_32_32_128",
    "CCT/FP32/CCT_2_32_32_128_Opset20",
    "microLlama/INT8/microLlama8",
)
L1_SIZES = (122000, 64000, 32000, 16000)


@dataclass(frozen=True)
class Case:
    """One project: it is compiled once and run with every kind of inputs in every check mode."""

    folder: Path
    l1: int
    buffering: str
    home: str
    cores: int
    inputs: tuple[str, ...] = ("stored", "random")
    checks: str = "all"

    def __str__(self) -> str:
        options = f"--l1 {self.l1} --buffering {self.buffering} --home {self.home} --cores {self.cores}"
        return f"{self.folder.relative_to(CORPUS)} {options} --checks {self.checks} --inputs {'|'.join(self.inputs)}"

    @property
    def may_not_fit(self) -> bool:
        """A small L1 may be too small for a network's smallest tiles: then the refusal (exit 4) is right."""
        return self.l1 < 64000


@dataclass(frozen=True)
class Outcome:
    case: Case
    code: int
    text: str
    seconds: float

    @property
    def refused(self) -> bool:
        return self.code == ExitCode.DOES_NOT_FIT and self.case.may_not_fit


def folders() -> list[Path]:
    return [MODELS / n for n in NETWORKS] + sorted(p for p in (CORPUS / "edge").iterdir() if p.is_dir())


def full() -> Iterator[Case]:
    """Every combination; the order visits every folder early."""
    for l1, buffering, home, cores in itertools.product(L1_SIZES, ("double", "single"), ("L3", "L2"), (8, 3, 1)):
        for folder in folders():
            yield Case(folder, l1, buffering, home, cores)


def sample() -> Iterator[Case]:
    """Every network and edge case at least once; the options are walked diagonally."""
    buffering, homes, cores = ("double", "single", "double"), ("L3", "L2", "L3", "L3", "L2"), (8, 1, 8, 3)
    for k, folder in enumerate(folders()):
        inputs = ("stored", "random") if k % 2 else ("random", "stored")
        yield Case(folder, L1_SIZES[k % 4], buffering[k % 3], homes[k % 5], cores[k // 2 % 4], inputs)


def run(case: Case) -> Outcome:
    """Runs a case in this process."""
    start = time.monotonic()
    options = Options("gap9", l1=case.l1, buffering=case.buffering, home=case.home, cores=case.cores)
    runs = [RunOptions(checks=case.checks, compare="all", inputs=i, timeout=3000) for i in case.inputs]
    try:
        results = run_each(case.folder, options, runs)
        wrong = [r.text() for r in results if not r.good]
        code, text = (ExitCode.VALUES_DIFFER, "\n".join(wrong)) if wrong else (ExitCode.GOOD, "")
    except DeeployError as error:
        code, text = error.exit_code, str(error)
    except Exception as error:  # reported like a failure, so that the other cases still run
        code, text = ExitCode.DEFECT, f"{type(error).__name__}: {error}"
    return Outcome(case, int(code), text[-2000:], time.monotonic() - start)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sample", action="store_true", help="the part that continuous integration runs")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose text contains TEXT")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--log", type=Path, help="one JSON line per case")
    args = parser.parse_args()
    if not CORPUS.is_dir():
        print(f"{CORPUS} is absent")
        return int(ExitCode.TOOL_MISSING)
    cases = [c for c in (sample() if args.sample else full()) if args.only in str(c)]
    passed = refused = failed = 0
    log = args.log.open("w") if args.log else None
    with ProcessPoolExecutor(args.jobs) as pool:
        for outcome in pool.map(run, cases):
            passed += outcome.code == ExitCode.GOOD
            refused += outcome.refused
            if outcome.code != ExitCode.GOOD and not outcome.refused:
                failed += 1
                print(f"FAILED {outcome.case}: exit {outcome.code}: {outcome.text}", flush=True)
            if log:
                entry = {"case": str(outcome.case), "exit": outcome.code, "seconds": round(outcome.seconds, 1), "text": outcome.text}
                log.write(json.dumps(entry) + "\n")
                log.flush()
    print(f"{refused} of them refused because L1 is too small for the smallest tile (exit 4)")
    print(f"{passed + refused} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
