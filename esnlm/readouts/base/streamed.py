"""Names that have moved to `esnlm.readouts.base.readout`."""

from esnlm.readouts.base.readout import WITHOUT_STATE, Block, Blocks

__all__ = ["WITHOUT_STATE", "Block", "Blocks"]
