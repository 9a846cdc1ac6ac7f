"""Elman's grammar as rules: the lexicon by word class, and the productions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

import numpy as np

from esnlm.grammars.pushdown import Rule, Stack

END = "."
WHO = "who"
NUMBERS = ("singular", "plural")

#: Word class -> its words, in the order of the vocabulary.
LEXICON: Mapping[str, tuple[str, ...]] = {
    "noun singular": ("boy", "girl", "cat", "dog"),
    "noun plural": ("boys", "girls", "cats", "dogs"),
    "proper": ("John", "Mary"),
    "verb required singular": ("chases", "feeds"),
    "verb required plural": ("chase", "feed"),
    "verb optional singular": ("sees", "hears"),
    "verb optional plural": ("see", "hear"),
    "verb none singular": ("walks", "lives"),
    "verb none plural": ("walk", "live"),
    "who": (WHO,),
    "end": (END,),
}


@dataclass(frozen=True)
class Productions:
    """The choices of `ElmanGrammar`, each with its probability.

    Parameters
    ----------
    noun_phrase, relative_clause, verb, object_probability, plural_probability, gaps
        Of `ElmanGrammar`, complete and checked.
    shares : word -> its probability among the words of its class.
    """

    noun_phrase: Mapping[str, float]
    relative_clause: Mapping[str, float]
    verb: Mapping[str, float]
    object_probability: float
    plural_probability: float
    gaps: bool
    shares: Mapping[str, float]

    def rules(self) -> dict[str, list[Rule]]:
        """Symbol -> its rules, for `PushdownProcess`."""
        verbs = {number: self._verbs(number) for number in NUMBERS}
        main = self._noun_phrases({number: (f"VP {number}",) for number in NUMBERS})
        inner = "gap" if self.gaps else "VP"
        gapped = self._noun_phrases({number: (f"{inner} {number}",) for number in NUMBERS})
        objects = self._noun_phrases(dict.fromkeys(NUMBERS, ()))
        common = self.noun_phrase["noun"] + self.noun_phrase["relative"]
        relative = self.noun_phrase["relative"] / common if common else 0.0
        rules = {"S": main, "object": objects}
        rules["(object)"] = [
            *_scaled(objects, self.object_probability),
            Rule(1 - self.object_probability, None),
        ]
        for number in NUMBERS:
            rules[f"(RC {number})"] = [
                Rule(relative, WHO, (f"who {number}",)),
                Rule(1 - relative, None),
            ]
            rules[f"who {number}"] = [
                *_scaled(verbs[number], self.relative_clause["subject"]),
                *_scaled(gapped, self.relative_clause["object"]),
            ]
            rules[f"VP {number}"] = verbs[number]
            if self.gaps:
                rules[f"gap {number}"] = self._gap_verbs(number)
        return rules

    def _noun_phrases(self, follow: Mapping[str, Stack]) -> list[Rule]:
        """NP, then ``follow[number]``; whether a clause follows a noun is left to the next word."""
        rules = [
            Rule(self.noun_phrase["proper"] * self.shares[word], word, follow["singular"])
            for word in LEXICON["proper"]
        ]
        common = self.noun_phrase["noun"] + self.noun_phrase["relative"]
        for number, share in zip(
            NUMBERS, (1 - self.plural_probability, self.plural_probability), strict=True
        ):
            rules += [
                Rule(common * share * self.shares[word], word, (f"(RC {number})", *follow[number]))
                for word in LEXICON[f"noun {number}"]
            ]
        return rules

    def _verbs(self, number: str) -> list[Rule]:
        follow = {"required": ("object",), "optional": ("(object)",), "none": ()}
        return [
            Rule(self.verb[kind] * self.shares[word], word, then)
            for kind, then in follow.items()
            for word in LEXICON[f"verb {kind} {number}"]
        ]

    def _gap_verbs(self, number: str) -> list[Rule]:
        """Verbs of an object relative: those that can take an object, which is the head noun."""
        transitive = self.verb["required"] + self.verb["optional"]
        if not transitive and self.relative_clause["object"]:
            raise ValueError(
                "object relatives need verbs that take an object: give verb['required'] or "
                "verb['optional'] a probability, or set relative_clause['object'] to 0"
            )
        return [
            Rule(self.verb[kind] / transitive * self.shares[word], word)
            for kind in ("required", "optional")
            for word in LEXICON[f"verb {kind} {number}"]
            if transitive
        ]


def lexical_shares(weights: Mapping[str, float]) -> dict[str, float]:
    """Probability of each word given its class."""
    words_known = set(chain.from_iterable(LEXICON.values()))
    for word, weight in weights.items():
        if word not in words_known:
            raise ValueError(f"word_weights names {word!r}, which is not in the vocabulary")
        if not 0 <= weight < np.inf:
            raise ValueError(f"the weight of {word!r} must be finite and >= 0, got {weight}")
    shares: dict[str, float] = {}
    for kind, words in LEXICON.items():
        total = sum(weights.get(word, 1.0) for word in words)
        if not total:
            raise ValueError(f"word_weights leave no word in the class {kind!r}")
        shares |= {word: weights.get(word, 1.0) / total for word in words}
    return shares


def _scaled(rules: Iterable[Rule], factor: float) -> list[Rule]:
    return [Rule(rule.probability * factor, rule.word, rule.then) for rule in rules]
