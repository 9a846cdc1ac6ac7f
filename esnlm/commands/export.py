"""``esnlm export``: a model as a folder that other libraries load."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from esnlm.commands.options.common import Model, finish
from esnlm.storage.atomic import locked
from esnlm.utils.messages import log


def export(
    model: Model, folder: Annotated[Path, Parameter("DIR")], /, *, format: Literal["hf"] = "hf"
) -> int:
    """Load the model, write the folder; the exit status.

    Parameters
    ----------
    folder
        Folder to write, which must not exist.
    format
        hf: AutoModelForCausalLM.from_pretrained(DIR, trust_remote_code=True) of Hugging Face
        transformers loads it, the model's code being in it.
    """
    from esnlm.interop.huggingface import check_free, export_model
    from esnlm.loading import load_model

    with locked(folder):
        check_free(folder)
        loaded = load_model(model)
        export_model(loaded, folder)
    if loaded.tokenizer_ is None:
        log.warning(
            "the model was trained on integers: DIR has no tokenizer and reads token ids alone"
        )
    print(f"wrote {folder}")
    finish(then=f"AutoModelForCausalLM.from_pretrained('{folder}', trust_remote_code=True)")
    return 0
