"""A language model of esnlm for transformers.

Written beside the weights by ``esnlm export``; needs torch and transformers alone. An encoder turns
tokens into hidden vectors, and a readout these into log-probabilities of the next token.

``logits`` are natural log-probabilities: a softmax leaves them as they are. They are computed in
float64, since a softmax over 50 000 of them in float32 is wrong by some 1e-5 nats a token, and
returned in the dtype of the weights.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import nll_loss
from transformers import GenerationMixin, PretrainedConfig, PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast

from .encoders_esnlm import LastTokens, State, build_encoder
from .readouts_esnlm import build_readout

#: Log-probability of a padding token that the model does not have: 0 times it is 0.
NEVER = -1e4
# Log-probabilities that are computed at once.
_CELLS = 1 << 22


class EsnlmConfig(PretrainedConfig):
    """Sizes and kinds of what ``model.safetensors`` holds.

    ``n_tokens`` are those that the model knows; the vocabulary has one more where padding has an id
    past them, which is ``padding``. ``reset_token_id`` is the token before which the state returns
    to the beginning, or None. ``n_last`` tokens are read by the readout itself.
    """

    # Before it loads a tokenizer, transformers reads config.json and asks whether to run its code,
    # unless it knows the type. This one it knows, and has no models of: a model without its code
    # is still refused.
    model_type = "rag"

    def __init__(
        self,
        vocab_size: int = 1,
        n_tokens: int = 1,
        encoder: dict[str, Any] | None = None,
        readout: dict[str, Any] | None = None,
        n_last: int = 0,
        reset_token_id: int | None = None,
        padding: int | None = None,
        **kwargs: Any,
    ) -> None:
        self.vocab_size, self.n_tokens = vocab_size, n_tokens
        self.encoder = encoder or {"kind": "none"}
        self.readout = readout or {"kind": "uniform", "n_outputs": n_tokens}
        self.n_last = n_last
        self.reset_token_id = reset_token_id
        self.padding = padding
        # A state has no longest text; harnesses cut their input at what stands here.
        lengths = {"n_positions": 1 << 20, "max_position_embeddings": 1 << 20}
        kwargs |= {"num_hidden_layers": 1, **lengths}
        kwargs.setdefault("tie_word_embeddings", False)
        super().__init__(**kwargs)


@dataclass
class StateCache:
    """What generation continues from: the encoder's state, the last tokens, and tokens read."""

    is_compileable: ClassVar[bool] = False

    encoder: State | None = None
    last: State | None = None
    n_seen: int = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Tokens read so far, padding included."""
        return self.n_seen

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Reorder the states: beam i continues beam ``beam_idx[i]``."""

        def reordered(state: State | None) -> State | None:
            if state is None:
                return None
            return tuple(
                s if s is None else s.index_select(0, beam_idx.to(s.device)) for s in state
            )

        self.encoder, self.last = reordered(self.encoder), reordered(self.last)


def check_dtype(dtype: torch.dtype) -> None:
    """Raise ValueError for types in which states and their sums mean nothing: 8 or 11 bits."""
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(
            "the model computes in float32 or float64: load it with dtype=torch.float32, got"
            f" {dtype}"
        )


def dtype_of(module: nn.Module) -> torch.dtype:
    """Return the dtype of a module's weights."""
    tensors = (*module.parameters(), *module.buffers())
    return next((t.dtype for t in tensors if t.is_floating_point()), torch.get_default_dtype())


class EsnlmPreTrainedModel(PreTrainedModel):
    """What both models share."""

    config_class = EsnlmConfig
    base_model_prefix = "model"
    main_input_name = "input_ids"
    _is_stateful = True

    def _init_weights(self, module: Any) -> None:
        """Every weight comes from the file."""

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        return False

    def get_input_embeddings(self) -> None:
        """None: encoders are of several kinds."""

    def get_output_embeddings(self) -> None:
        """None: readouts are of several kinds."""


class EsnlmModel(EsnlmPreTrainedModel):
    """Tokens to hidden vectors, for classifiers: those of a reservoir are its states.

    The state is zero before the first token that the attention mask lets through, and before
    every ``config.reset_token_id``. Padding, left or right, leaves the state as it is.
    """

    _keys_to_ignore_on_load_unexpected: ClassVar[Any] = [r"^readout\."]

    def __init__(self, config: EsnlmConfig) -> None:
        super().__init__(config)
        check_dtype(torch.get_default_dtype())  # of from_pretrained(dtype=...)
        reset = config.reset_token_id
        self.encoder = build_encoder(config.encoder, config.n_tokens, reset)
        self.last = LastTokens(config.n_last, -1, reset) if config.n_last else None
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: StateCache | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> Any:
        """Hidden vectors (batch, length, hidden_size); ValueError for n-grams, which have none."""
        if self.config.encoder["kind"] == "none":
            raise ValueError("n-grams have no states: load AutoModelForCausalLM for their scores")
        hidden, _, cache = self.read(input_ids, attention_mask, past_key_values)
        out = BaseModelOutputWithPast(
            last_hidden_state=hidden,
            past_key_values=None if use_cache is False else cache,
            hidden_states=(hidden,) if output_hidden_states else None,
        )
        return out.to_tuple() if return_dict is False else out

    def read(
        self, ids: Tensor, attention_mask: Tensor | None, before: StateCache | None
    ) -> tuple[Tensor, Tensor | None, StateCache]:
        """Hidden vectors, the last tokens (batch, length, n_last) or None, and the new cache."""
        before = before or StateCache()
        read = self._is_read(ids, attention_mask)
        if read is not None:
            ids = ids.masked_fill(~read, 0)
        check_dtype(dtype_of(self.encoder))
        hidden, state = self.encoder(ids, read, before.encoder)
        last, newest = (None, None) if self.last is None else self.last(ids, read, before.last)
        return hidden, last, StateCache(state, newest, before.n_seen + ids.shape[1])

    def _is_read(self, ids: Tensor, attention_mask: Tensor | None) -> Tensor | None:
        """Which tokens (batch, length) are no padding; None: all of them."""
        read = None
        if attention_mask is not None:
            if attention_mask.dim() == 3:  # of each place to all: the last row lets most through
                attention_mask = attention_mask[:, -1]
            read = attention_mask[:, attention_mask.shape[1] - ids.shape[1] :].bool()
        if self.config.vocab_size == self.config.n_tokens:
            return read
        # Padding past the vocabulary cannot be read; generation marks what follows EOS as read.
        inside = ids < self.config.n_tokens
        return inside if read is None else read & inside


class EsnlmForCausalLM(EsnlmPreTrainedModel, GenerationMixin):
    """`EsnlmModel` and a readout as a causal language model."""

    def __init__(self, config: EsnlmConfig) -> None:
        super().__init__(config)
        self.model = EsnlmModel(config)
        self.readout = build_readout(config.hidden_size, config.readout)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        past_key_values: StateCache | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        **kwargs: Any,
    ) -> Any:
        """Log-probabilities (batch, length, vocab_size) of the token after each one.

        With ``labels`` (batch, length) also the mean negative log-likelihood of the tokens after
        the first; -100 and padding are left out.
        """
        hidden, last, cache = self.model.read(input_ids, attention_mask, past_key_values)
        columns = logits_to_keep
        if isinstance(columns, int):
            columns = slice(-columns if columns else None, None)
        logits = self.log_probabilities(
            hidden[:, columns], None if last is None else last[:, columns]
        )
        loss = None
        if labels is not None:
            if attention_mask is not None and attention_mask.shape == labels.shape:
                labels = labels.masked_fill(attention_mask == 0, -100)
            labels = labels.masked_fill(labels >= self.config.n_tokens, -100)
            following = labels[:, columns][:, 1:].reshape(-1).to(logits.device)
            predicted = logits[:, :-1].reshape(-1, logits.shape[-1])
            loss = nll_loss(predicted, following, ignore_index=-100)
        out = CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            past_key_values=None if use_cache is False else cache,
            hidden_states=(hidden,) if output_hidden_states else None,
        )
        return out.to_tuple() if return_dict is False else out

    def log_probabilities(self, hidden: Tensor, last: Tensor | None) -> Tensor:
        """Log-probabilities (..., vocab_size) in the dtype of the weights, some rows at a time."""
        shape, n_tokens, size = hidden.shape[:-1], self.config.n_tokens, self.config.vocab_size
        rows = [hidden.flatten(0, -2)]
        if last is not None:
            rows.append(last.flatten(0, -2))
        n_rows = max(1, _CELLS // size)
        pieces = zip(*(each.split(n_rows) for each in rows), strict=True)
        dtype = dtype_of(self.readout)
        if torch.is_grad_enabled():
            parts = [self.readout(*piece).to(dtype) for piece in pieces]
            logits = torch.cat(parts)
            if size > n_tokens:
                column = logits.new_full((len(logits), size - n_tokens), NEVER)
                logits = torch.cat([logits, column], dim=-1)
            return logits.unflatten(0, shape)
        logits = torch.full((len(rows[0]), size), NEVER, dtype=dtype, device=hidden.device)
        for start, piece in zip(range(0, len(logits), n_rows), pieces, strict=True):
            logits[start : start + n_rows, :n_tokens] = self.readout(*piece)
        return logits.unflatten(0, shape)
