"""``esnlm export``: a model as a folder that other libraries load."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from esnlm.options.common import Model, finish
from esnlm.options.values import file_name
from esnlm.storage.atomic import locked
from esnlm.utils.messages import log


def export(
    model: Model,
    folder: Annotated[Path, file_name("DIR"), Parameter("DIR")],
    /,
    *,
    format: Literal["hf", "arpa"] = "hf",
    license: str | None = None,
) -> int:
    """Load the model, write the folder; the exit status.

    Parameters
    ----------
    folder
        A folder, or file of --format arpa, to write, which must not exist.
    format
        hf: AutoModelForCausalLM.from_pretrained(DIR, trust_remote_code=True) of Hugging Face
        transformers loads it, the model's code being in it. arpa: n-grams as a file that KenLM and
        SRILM read; if its name ends in .arpa, commands that score or draw take it as a MODEL.
    license
        Licence of the weights, by Hugging Face's identifier, such as cc-by-4.0, for the model card
        (default: unknown).
    """
    from esnlm.interop.huggingface import check_free, export_model
    from esnlm.interop.model_card import UNKNOWN
    from esnlm.loading import load_model
    from esnlm.models.arpa import tokenizer_of, write_arpa
    from esnlm.models.ngram import NgramLanguageModel
    from esnlm.runs.run_record import record_beside

    if format == "hf" and folder.name.endswith(".arpa"):
        raise ValueError(f"{folder} would be a folder: pass --format arpa, or name it otherwise")
    if format == "arpa" and license is not None:
        raise ValueError("--license is of the model card, which --format arpa lacks: leave it out")
    with locked(folder):
        check_free(folder)
        loaded = load_model(model)
        if format == "arpa":
            if not isinstance(loaded, NgramLanguageModel):
                raise ValueError(f"--format arpa needs n-grams, and {model} holds another model")
            if loaded.tokenizer_ is not None:
                check_free(tokenizer_of(folder))
            write_arpa(loaded, folder)
            print(f"wrote {folder}")
            return 0
        export_model(loaded, folder, record_beside(model), license or UNKNOWN)
    if loaded.tokenizer_ is None:
        log.warning(
            "the model was trained on integers: DIR has no tokenizer and reads token ids alone"
        )
    print(f"wrote {folder}")
    finish(then=f"AutoModelForCausalLM.from_pretrained('{folder}', trust_remote_code=True)")
    return 0
