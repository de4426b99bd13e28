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
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

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
GOOD, DOES_NOT_FIT = 0, 4


@dataclass(frozen=True)
class Case:
    folder: Path
    arguments: tuple[str, ...]
    may_not_fit: bool = False

    def __str__(self) -> str:
        return f"{self.folder.relative_to(CORPUS)} {' '.join(self.arguments)}"


def folders() -> list[Path]:
    return [MODELS / n for n in NETWORKS] + sorted(p for p in (CORPUS / "edge").iterdir() if p.is_dir())


def full() -> Iterator[Case]:
    """Every combination. A small L1 may be too small for a network's smallest tiles: then the refusal (exit 4) is right."""
    for folder in folders():
        for l1, buffering, home, cores, inputs in itertools.product(
            L1_SIZES, ("single", "double"), ("L2", "L3"), (1, 3, 8), ("stored", "random")
        ):
            yield case(folder, l1, buffering, home, cores, inputs)


def sample() -> Iterator[Case]:
    """Every network and edge case at least once; the axes of the matrix are walked diagonally."""
    combinations = list(
        zip(
            itertools.cycle(L1_SIZES),
            itertools.cycle(("double", "single", "double")),
            itertools.cycle(("L3", "L2", "L3", "L3", "L2")),
            itertools.cycle((8, 1, 8, 3)),
            [("stored", "random")[i // 3 % 2] for i in range(60)],
            strict=False,
        )
    )
    heavy = {MODELS / n for n in NETWORKS if "CCT_2" in n or "CCT_1_32" in n or "128" in n or "Llama" in n}
    for index, folder in enumerate(folders()):
        repeats = 1 if folder in heavy else 2
        for k in range(repeats):
            yield case(folder, *combinations[(2 * index + k) % len(combinations)], light=folder in heavy)


def case(folder: Path, l1: int, buffering: str, home: str, cores: int, inputs: str, light: bool = False) -> Case:
    arguments = ("--l1", str(l1), "--buffering", buffering, "--home", home, "--cores", str(cores), "--inputs", inputs)
    arguments += ("--checks", "lazy" if light else "all", "--compare", "all")
    return Case(folder, arguments, may_not_fit=l1 < 64000)


def run(item: Case) -> tuple[Case, int, str, float]:
    command = [
        sys.executable,
        "-m",
        "Deeploy",
        "run",
        str(item.folder),
        "--platform",
        "gap9",
        "--json",
        "--timeout",
        "3000",
        *item.arguments,
    ]
    start = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    return item, done.returncode, (done.stderr.strip() or done.stdout.strip())[-2000:], time.monotonic() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sample", action="store_true", help="the part that continuous integration runs")
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose text contains TEXT")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--log", type=Path, help="one JSON line per case")
    args = parser.parse_args()
    if not CORPUS.is_dir():
        print(f"{CORPUS} is absent")
        return 5
    cases = [c for c in (sample() if args.sample else full()) if args.only in str(c)]
    passed = refused = 0
    failed: list[str] = []
    log = args.log.open("w") if args.log else None
    with ThreadPoolExecutor(args.jobs) as pool:
        for item, code, text, seconds in pool.map(run, cases):
            right = code == GOOD or (code == DOES_NOT_FIT and item.may_not_fit)
            passed += code == GOOD
            refused += code == DOES_NOT_FIT and item.may_not_fit
            if not right:
                failed.append(f"{item}: exit {code}: {text}")
                print(f"FAILED {failed[-1]}", flush=True)
            if log:
                log.write(json.dumps({"case": str(item), "exit": code, "seconds": round(seconds, 1), "text": "" if right else text}) + "\n")
                log.flush()
    print(f"{refused} refused because L1 is too small for the smallest tile (exit 4)")
    print(f"{passed + refused} passed, {len(failed)} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
