"""``esnlm interpolate``: several models as one, with weights from held-out text."""

from typing import Annotated

from cyclopts import Parameter

from esnlm.options.common import Device, Documents, File, NewModel, finish
from esnlm.options.corpus import check_documents, split_of
from esnlm.storage.atomic import locked


def interpolate(
    models: Annotated[tuple[File, ...], Parameter("MODEL")],
    /,
    *,
    held_out: Annotated[str, Parameter(metavar="SHARDS|TEXT")],
    out: NewModel,
    overwrite: bool = False,
    documents: Documents = None,
    device: Device = None,
) -> int:
    """Find the likeliest weights and save; the exit status.

    Parameters
    ----------
    models
        Two models or more with the same tokenizer: networks, reservoirs, n-grams.
    held_out
        Text to find the weights on, apart from what any model was trained on.
    overwrite
        Replace an existing model.
    """
    from esnlm.loading import load_model
    from esnlm.models.checks import warn_of_unknown
    from esnlm.models.interpolated import InterpolatedModel
    from esnlm.storage.model_folder import check_target
    from esnlm.text.source import open_source

    if len(models) < 2:
        names = ", ".join(map(str, models))
        raise ValueError(f"interpolate needs two models at least, got {names}")
    source = open_source([held_out])
    if source.is_shards and documents:
        raise ValueError("--documents is of text: shards were cut in tokens by prepare")
    with locked(out):
        check_target(out, overwrite=overwrite)
        model = InterpolatedModel([load_model(each, device=device) for each in models])
        check_documents(documents, model.reset_)
        if source.is_shards and model.tokenizer_ is not None:
            text = source.stream(model.tokenizer_)
        else:
            text = source.documents(split_of(model, documents))
        stream = model.tokenize(text)
        model.fit(stream).save(out)
        warn_of_unknown(stream.tokens, model.tokenizer_)
    for name, weight, loss in zip(models, model.weights_, model.losses_, strict=False):
        print(f"{weight:.4f} of {name}, {loss:.4f} nats a token")
    print(f"{out}: {model.losses_[-1]:.4f} nats a token of {held_out}")
    finish(then=f"esnlm evaluate {out} TEXT")
    return 0
