"""Platform files: every one is read, faults are named, sizes can be overridden."""

from __future__ import annotations

import pytest

from Deeploy import platform
from Deeploy.errors import UsageError
from Deeploy.lower.context import ALIGNMENT
from Deeploy.program.tensor import Level
from Deeploy.simulate.gvsoc import Gvsoc


def test_every_platform_is_read():
    assert {"gap9", "pulp-open"} <= set(platform.names())
    for name in platform.names():
        chip = platform.load(name)
        assert chip.name == name
        assert chip.levels[Level.L1].usable < chip.levels[Level.L2].usable < chip.levels[Level.L3].usable


def test_gap9_is_what_its_file_says():
    chip = platform.load("gap9")
    assert (chip.cores, chip.isa, chip.runtime) == (8, "xpulpv2", "gap9")
    assert chip.gvsoc_target == "gap9_sized"
    assert (chip.levels[Level.L1].bytes, chip.levels[Level.L1].usable) == (131072, 122000)
    assert chip.levels[Level.L3].read_rounding == 4
    assert chip.dma_l2.read_bytes_per_cycle == chip.dma_l2.write_bytes_per_cycle == 8
    assert chip.dma_l3.write_bytes_per_cycle == 0.8
    assert chip.dma_l2.max_bytes == 2**17 - 1


def test_what_the_compiler_assumes_of_every_platform():
    header = (platform.targets_dir() / "runtime" / "include" / "dp_runtime.h").read_text()
    assert "#define DP_DMA_MAX_BYTES ((1u << 17) - 1u)" in header
    for name in platform.names():
        chip = platform.load(name)
        assert min(chip.dma_l2.max_bytes, chip.dma_l3.max_bytes) == 2**17 - 1
        assert chip.dma_l2.alignment == chip.dma_l3.alignment == 1
        assert all(ALIGNMENT % level.alignment == 0 for level in chip.levels.values())


def test_the_folder_of_targets():
    assert (platform.targets_dir() / "runtime" / "include" / "dp_kernel.h").is_file()


def test_an_unknown_name_lists_those_there_are():
    with pytest.raises(UsageError, match="gap10.*gap9, pulp-open"):
        platform.load("gap10")
    with pytest.raises(UsageError):
        platform.load("../platforms/gap9")


FAULTS = {
    "no key": ("cores = 8\n", "", "'cores' is missing"),
    "deep": ("max_bytes = 131071     # one command\n", "", "'dma.l2.max_bytes' is missing"),
    "unknown": ("cores = 8\n", "cores = 8\ncoers = 8\n", "'coers'"),
    "unknown deep": ("read_rounding = 4 ", "read_runding = 4 ", "'levels.L3.read_runding'"),
    "type": ("cores = 8\n", 'cores = "8"\n', "'cores' must be a whole number"),
    "truth": ("cores = 8\n", "cores = true\n", "'cores' must be a whole number"),
    "range": ("cores = 8\n", "cores = 0\n", "at least 1"),
    "bandwidth": ("bytes_per_cycle = 8.0", "bytes_per_cycle = 0", "above 0"),
    "syntax": ("cores = 8\n", "cores =\n", "not TOML"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_a_file_is_named(fault, tmp_path):
    old, new, message = FAULTS[fault]
    text = (platform.targets_dir() / "platforms" / "gap9.toml").read_text()
    assert old in text
    path = tmp_path / "chip.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError) as error:
        platform.read(path)
    assert message in str(error.value) and "chip.toml" in str(error.value)


def test_the_simulators_target_may_be_absent(tmp_path):
    lines = (platform.targets_dir() / "platforms" / "gap9.toml").read_text().splitlines(keepends=True)
    path = tmp_path / "chip.toml"
    path.write_text("".join(line for line in lines if not line.startswith("gvsoc_target")))
    chip = platform.read(path)
    assert chip.gvsoc_target == ""
    with pytest.raises(UsageError, match="no GVSoC target"):
        Gvsoc(chip)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        platform.read(tmp_path / "chip.toml")


def test_overrides():
    chip = platform.load("gap9")
    small = chip.with_overrides(l1=16000, l2=100_000, cores=3)
    assert [small.levels[level].usable for level in Level] == [16000, 100_000, chip.levels[Level.L3].usable]
    assert small.cores == 3
    assert small.with_overrides(l1=16000, l2=100_000, cores=3) == small
    # what the chip needs for itself is never given away
    assert chip.with_overrides(l1=131072).levels[Level.L1].usable == 122000
    assert chip.with_overrides(l1=131072).with_overrides(l1=131072).levels[Level.L1].usable == 122000
    for wrong in ({"l1": 0}, {"l2": -1}, {"l1": 131073}, {"cores": 0}, {"cores": 9}):
        with pytest.raises(UsageError):
            chip.with_overrides(**wrong)
