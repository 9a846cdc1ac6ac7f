"""Options of ``esnlm train``: reservoir and readout, or a network trained by gradient."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from esnlm.models.recipes import (
    default_settings,
    is_penalty_open,
    make_features,
    make_readout,
    make_reservoir,
)
from esnlm.options.common import NewModel, SharedOptions, group, set_options
from esnlm.options.corpus import CorpusOptions, HeldOut
from esnlm.options.training_run import PassOptions
from esnlm.options.values import Features, LeakRate, Pairs, Seed, integer, real
from esnlm.readouts.registry import BY_OPTION

if TYPE_CHECKING:
    from esnlm.models.language_model import LanguageModel
    from esnlm.text.corpus import TokenStream
    from esnlm.text.source import Source
    from esnlm.text.tokenizers import Tokenizer
    from esnlm.training.trainer import TrainingPlan


@group("Reservoir")
class WeightOptions:
    """Parameters of `esnlm.Reservoir` that say how weights are drawn and used."""

    topology: Annotated[str | None, Parameter(metavar="NAME")] = None
    """random, bernoulli, offsets, ring, small_world, orthogonal, delay_line or diagonal (units are
    not coupled)."""
    spectral_radius: Annotated[float | None, real("R")] = None
    """Spectral radius of the recurrent weights."""
    input_scaling: Annotated[float | None, real("S")] = None
    """Standard deviation of the input weights."""
    bias_scaling: Annotated[float | None, real("S")] = None
    """Standard deviation of the biases."""
    activation: Annotated[str | None, Parameter(metavar="NAME")] = None
    """tanh, relu or identity."""


@group(
    "Reservoir",
    "Defaults of reservoir, readout and features come from the recipe, or are those of"
    " `esnlm.Reservoir` and the readout's class where it says nothing.",
)
class ReservoirOptions(WeightOptions):
    """Parameters of `esnlm.Reservoir`; those that are not set have no value."""

    n_units: Annotated[int | None, Parameter("--units"), integer("N")] = None
    """Number of units."""
    degree: Annotated[int | None, integer("D")] = None
    """Connections into a unit."""
    leak_rate: LeakRate = None
    """A number in (0, 1], uniform:LOW:HIGH or inverse_gamma:ALPHA."""
    input_degree: Annotated[int | None, integer("K")] = None
    """Units that an input drives (default: all)."""


@group("Readout")
class ReadoutOptions:
    """A readout and its parameters; those that are not set have no value."""

    readout: Annotated[str | None, Parameter(choices=tuple(BY_OPTION))] = None
    """Readout of the states."""
    factors: Literal["ridge", "softmax", "moe"] | None = None
    """Readouts of the classes and of their words, in the factored readout (default: softmax)."""
    direct: Annotated[int | None, integer("K")] = None
    """Last tokens that a lowrank or gated readout reads directly, past the reservoir; 0: none."""
    alpha: Annotated[float | None, real("A")] = None
    """Weight penalty."""
    passes: Annotated[int | None, integer("P")] = None
    """Passes over the text, or iterations of the solver."""
    experts: Annotated[int | None, integer("K")] = None
    """Experts of the mixture (moe)."""
    classes: Annotated[int | None, integer("K")] = None
    """Classes of words (factored)."""
    option: Pairs = ()
    """Any other parameter of the readout's class."""


@group(
    "Training by gradient",
    "With --model NAME a network of the extra esnlm[torch] is trained: esn, esn+i, esn+mlp,"
    " lstm, gpt, gpt2, mts-lstm, aerc, laerc, transformer and others, in their papers' settings"
    " unless options say otherwise. --option NAME=VALUE sets any other parameter of the"
    " network, and reservoir options are those of esn, esn+i and esn+mlp. Several processes:"
    " torchrun --nproc-per-node=N -m -- esnlm train ...",
)
class NetworkOptions:
    """A network and its training; what is not given is the network's own."""

    model: Annotated[Any, Parameter(metavar="NAME")] = None
    """The network (default: none, a reservoir and a readout without torch)."""
    device: Annotated[str | None, Parameter(metavar="NAME")] = None
    """auto (default), cpu, cuda or cuda:N."""
    rank: Annotated[int | None, integer("R")] = None
    """Rank of the output matrix (esn: 512)."""
    dropout: Annotated[float | None, real("P")] = None
    """Share of units left out in training."""
    batch_size: Annotated[int | None, integer("B")] = None
    """Sentences, streams or windows of a step."""
    learning_rate: Annotated[float | None, real("RATE")] = None
    """Learning rate of the optimiser."""
    weight_decay: Annotated[float | None, real("D")] = None
    """Weight decay of the optimiser."""
    schedule: Annotated[str | None, Parameter(metavar="NAME")] = None
    """constant, cosine or warmup-hold-cosine."""
    clip: Annotated[float | None, real("NORM")] = None
    """Largest norm of a gradient."""
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


def model_settings(
    reservoir: ReservoirOptions, readout: ReadoutOptions, features: Any
) -> dict[str, Any]:
    """Return the options that were set as settings of `esnlm.models.recipes`."""
    settings = set_options(reservoir) | set_options(readout)
    settings["option"] = dict(readout.option)
    return settings if features is None else settings | {"features": features}


@group()
class TrainOptions:
    """Options of ``esnlm train``."""

    out: NewModel
    recipe: Annotated[str | None, Parameter(metavar="NAME|FILE")] = None
    """words, characters, grammar, rachez2012, ueda2025, koster2025, or a file such as the best.toml
    of esnlm search; options beside it win (default: chosen by the vocabulary)."""
    overwrite: bool = False
    """Replace an existing model or its checkpoints."""
    held_out: HeldOut = ()
    """Text to score, to compare with n-grams, and to choose penalties and stops by."""
    features: Features = None
    """Dimensions of word features that drive the reservoir: learned by gradient, with spectral:
    from bigram counts; 0: one-hot tokens."""
    seed: Seed = 0
    """The same seed, the same model."""
    corpus: CorpusOptions = CorpusOptions()
    reservoir: ReservoirOptions = ReservoirOptions()
    readout: ReadoutOptions = ReadoutOptions()
    passes: PassOptions = PassOptions()
    shared: SharedOptions = SharedOptions()
    network: NetworkOptions = NetworkOptions()

    def settings(self) -> dict[str, Any]:
        """Return the options that were set as settings of `esnlm.models.recipes`."""
        return model_settings(self.reservoir, self.readout, self.features)

    def check_model(self) -> None:
        """Raise ValueError for settings that make no model, before any text is read."""
        import numpy as np

        from esnlm.reservoir.weights import leak_rates
        from esnlm.utils.validation import check_parameters

        settings = self.settings()
        reservoir = make_reservoir({"n_units": 1} | settings, self.seed)
        check_parameters(reservoir)
        leak_rates(reservoir.leak_rate, 1, np.dtype(np.float32), np.random.default_rng(0))
        make_features(self.features, self.seed)
        if self.readout.readout is not None:
            check_parameters(make_readout(settings, self.seed))
        self.plan()

    def make_model(
        self, n_tokens: int, tokenizer: "Tokenizer | None", reset: str
    ) -> "LanguageModel":
        """Return the unfitted model for a vocabulary of ``n_tokens``.

        What the options leave open comes from the recipe, as in `LanguageModel`.
        """
        from esnlm import LanguageModel

        characters, seed = tokenizer is not None and tokenizer.has_characters, self.seed
        settings = default_settings(self.settings(), n_tokens, characters=characters)
        return LanguageModel(
            make_reservoir(settings, seed),
            make_readout(settings, seed),
            tokenizer=tokenizer,
            features=make_features(settings["features"], seed),
            reset=reset,
            n_tokens=n_tokens if tokenizer is None else None,
            random_state=seed,
        )

    def choose_penalty(
        self, model: "LanguageModel", stream: "TokenStream", held_out: "TokenStream | None"
    ) -> None:
        """Choose the penalty by held-out text, where no option sets it."""
        from esnlm.models.parts import settle_penalty

        if is_penalty_open(self.settings()):
            settle_penalty(model, stream, held_out)

    def plan(self) -> "TrainingPlan":
        """Return the plan of training in passes."""
        from esnlm.training.trainer import TrainingPlan

        names = "chunk_tokens", "score_every", "held_out_tokens"
        settings = {k: value for k, value in set_options(self.passes).items() if k in names}
        return TrainingPlan(random_state=self.seed, **settings)

    def in_passes(self, source: "Source") -> bool:
        """Return whether the text is read in passes, rather than fitted at once."""
        return source.is_shards or self.passes != PassOptions()
