"""SyntaxGym's test suites (Hu et al. 2020; Gauthier et al. 2020): read them, score regions, judge.

The surprisal of a region is the plain sum over its tokens, a token being of the region where its
first character stands, and a space of the region after it. That is what the published figures are
made of. (The surprisal of words in `esnlm.models.surprisal` moves the probability that a word ends
from the next word to its own; a region that ends with a word would change by as much.)
"""
