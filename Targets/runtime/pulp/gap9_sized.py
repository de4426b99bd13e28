"""GVSoC target: the installed pulp-open chip with GAP9's memory sizes (L1 128 KiB, HyperRAM 32 MiB) and bank conflicts in L1.

Run: gvsoc --target-dir=<this folder> --target=gap9_sized --binary X.elf --work-dir W run
Nothing of GVSoC is copied here: the cluster's description is the installed one, read and given another size of L1.
"""

import functools
import json
import os
import tempfile

import gvsoc.runner as gvsoc
import gvsoc.systree as systree
import memory.memory as memory
import pulp.chips.pulp_open.l1_subsystem as l1_subsystem
import pulp.chips.pulp_open.pulp_open as pulp_open
from devices.hyperbus.hyperflash import Hyperflash
from devices.hyperbus.hyperram import Hyperram
from devices.uart.uart_checker import Uart_checker
from gapylib.chips.pulp.flash import DefaultFlashRomV2

L1_BYTES = 128 * 1024
RAM_BYTES = 32 * 1024 * 1024

# One access of 32 bits per bank and cycle; the stock description has no conflicts.
l1_subsystem.Memory = functools.partial(memory.Memory, width_log2=2)


def cluster_description(folder: str) -> str:
    """A copy, in `folder`, of the stock description with the size of L1 changed."""
    stock = os.path.join(os.path.dirname(pulp_open.__file__), "cluster.json")
    with open(stock) as file:
        cluster = json.load(file)
    for view in ("mapping", "ts_mapping"):
        cluster["l1"][view]["size"] = hex(L1_BYTES)
    path = os.path.join(folder, "cluster.json")
    with open(path, "w") as file:
        json.dump(cluster, file)
    return path


class Board(systree.Component):
    """The chip with its HyperRAM and HyperFlash."""

    def __init__(self, parent, name, parser, options):
        super().__init__(parent, name, options=options)
        self.set_target_name("gap9_sized")
        attributes = pulp_open.PulpOpenAttr(self)
        self.set_attributes(attributes)
        with tempfile.TemporaryDirectory() as folder:
            chip = pulp_open.Pulp_open(self, "chip", attributes, parser, cluster_config_file=cluster_description(folder))
        flash = Hyperflash(self, "hyperflash")
        ram = Hyperram(self, "ram", size=RAM_BYTES)
        self.register_flash(
            DefaultFlashRomV2(
                self, "hyperflash", image_name=flash.get_image_path(), flash_attributes={"flash_type": "hyper"}, size=8 * 1024 * 1024
            )
        )
        self.bind(chip, "hyper0_cs1_data", flash, "input")
        self.bind(chip, "hyper0_cs0_data", ram, "input")
        self.bind(chip, "uart0", Uart_checker(self, "uart_checker"), "input")


class Target(gvsoc.Target):
    """What the front-end looks for."""

    gapy_description = "pulp-open with GAP9's memory sizes"
    model = Board
    name = "gap9_sized"

    def __init__(self, parser, options=None, name=None):
        super().__init__(parser, options, model=Board, name=name)
