"""
Generating text
===============

``sample`` continues a prompt: the temperature divides the log-probabilities, ``top_k`` and
``top_p`` keep the likeliest tokens. On a grammar their effect can be counted: how many sentences
are grammatical, and how many differ.
"""

import matplotlib.pyplot as plt
import numpy as np

from esnlm import (
    ElmanGrammar,
    LanguageModel,
    MixtureOfExpertsReadout,
    Reservoir,
    SoftmaxReadout,
    SpectralWordFeatures,
)

grammar = ElmanGrammar()
train = [" ".join(words) for words in grammar.sample(3000, random_state=0)]
model = LanguageModel(
    Reservoir(100, random_state=0),
    MixtureOfExpertsReadout(n_experts=4, random_state=0),
    tokenizer="word",
    features=SpectralWordFeatures(n_features=8, random_state=0),
).fit(train)

# %%
# A prompt
# --------
# The prompt is not repeated. After the end of a sentence a new one begins.

for seed in range(3):
    print("boys who" + model.sample(20, prompt="boys who", random_state=seed).split("\n")[0])

# %%
# Characters
# ----------
# The same with characters for tokens; the state is carried through the whole text.

characters = LanguageModel(
    Reservoir(300, random_state=0), SoftmaxReadout(), tokenizer="char", reset="never"
).fit("\n".join(train[:1500]))
print("the girl" + characters.sample(120, prompt="the girl", random_state=0))

# %%
# Temperature
# -----------
# A sentence is grammatical if the grammar gives each of its words a chance.


def is_grammatical(words: list[str]) -> bool:
    try:
        grammar.oracle(grammar.encode([words]))
    except ValueError:
        return False
    return len(words) > 1 and words[-1] == "."


TEMPERATURES = [0.2, 0.4, 0.7, 1.0, 1.5]
right, different = [], []
for temperature in TEMPERATURES:
    text = model.sample(1000, temperature=temperature, random_state=0)
    sentences = [line.split() for line in text.split("\n")[:-1]]
    right.append(np.mean([is_grammatical(words) for words in sentences]))
    different.append(len({tuple(words) for words in sentences}) / len(sentences))
    print(f"temperature {temperature}: {right[-1]:.0%} grammatical, {different[-1]:.0%} differ")

# %%
# The trade
# ---------

figure, axis = plt.subplots(figsize=(6, 3.6))
axis.plot(TEMPERATURES, right, "o-", label="grammatical")
axis.plot(TEMPERATURES, different, "s-", label="different")
axis.set(xlabel="temperature", ylabel="share of sentences", ylim=(0, 1.03))
axis.set_title("Grammatical and different sentences by temperature")
axis.legend(frameon=False, loc="lower left")
figure.tight_layout()
plt.show()
