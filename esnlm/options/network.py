"""Options of a network trained by gradient."""

from typing import Annotated, Any

from cyclopts import Parameter

from esnlm.options.common import group
from esnlm.options.values import Pairs, integer, real


@group(
    "Training by gradient",
    "With --model NAME a network of the extra esnlm[torch] is trained: esn, esn+i, esn+mlp,"
    " lstm, gpt2, mts-lstm, aerc, laerc, transformer and others, in the settings of its paper"
    " unless options say otherwise. --option NAME=VALUE sets any other parameter of the"
    " network, and reservoir options are those of esn, esn+i and esn+mlp. Several processes:"
    " torchrun --nproc-per-node=N -m -- esnlm train ...",
)
class NetworkOptions:
    """A network and its training; what is not given is the network's own."""

    model: Annotated[Any, Parameter(metavar="NAME")] = None
    """The network; without it the core's reservoir and readout."""
    device: Annotated[str | None, Parameter(metavar="NAME")] = None
    """auto (default), cpu, cuda or cuda:N."""
    rank: Annotated[int | None, integer("R")] = None
    """Of the output matrix (esn: 512)."""
    dropout: Annotated[float | None, real("P")] = None
    """Share of units left out in training."""
    batch_size: Annotated[int | None, integer("B")] = None
    """Sentences of a step (default: 32)."""
    learning_rate: Annotated[float | None, real("RATE")] = None
    """Learning rate of AdamW (default: 0.001)."""
    weight_decay: Annotated[float | None, real("D")] = None
    """Weight decay of AdamW (default: 0.01)."""
    schedule: Annotated[str | None, Parameter(metavar="NAME")] = None
    """constant, cosine or warmup-hold-cosine."""
    clip: Annotated[float | None, real("NORM")] = None
    """Largest norm of a gradient (default: any)."""
    accumulate: Annotated[int | None, integer("K")] = None
    """Batches whose gradients make a step."""
    bf16: bool | None = None
    """Compute in bfloat16; states in float32."""
    batching: Annotated[str | None, Parameter(metavar="NAME")] = None
    """sentences, streams or windows of the text."""
    length: Annotated[int | None, integer("T")] = None
    """Most tokens of a sentence, stream or window."""
    pool: Annotated[int | None, integer("K")] = None
    """Sort sentences by length within K batches, which saves padding."""
    plan: Pairs = ()
    """Any other setting of the training plan."""
