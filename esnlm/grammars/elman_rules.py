"""Elman's grammar as rules: the lexicon by word class, and the productions."""

from collections.abc import Iterable, Mapping
from itertools import chain

from esnlm.grammars.pushdown import Rule, Stack
from esnlm.utils.validation import Number

END = "."
WHO = "who"
NUMBERS = ("singular", "plural")
#: A weight of a word or a length; far larger ones overflow in sums and quotients.
WEIGHT = Number(0, 1e30)

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


def productions(
    noun_phrase: Mapping[str, float],
    relative_clause: Mapping[str, float],
    verb: Mapping[str, float],
    object_probability: float,
    plural_probability: float,
    gaps: bool,
    shares: Mapping[str, float],
) -> dict[str, list[Rule]]:
    """Return symbol -> its rules, for `PushdownProcess`: the choices of `ElmanGrammar`.

    ``shares`` maps a word to its probability among the words of its class.
    """
    common = noun_phrase["noun"] + noun_phrase["relative"]
    transitive = verb["required"] + verb["optional"]
    if gaps and not transitive and relative_clause["object"]:
        raise ValueError(
            "object relatives need verbs that take an object: give verb['required'] or "
            "verb['optional'] a probability, or set relative_clause['object'] to 0"
        )

    def noun_phrases(follow: Mapping[str, Stack]) -> list[Rule]:
        """Return rules for a noun phrase; ``follow[number]`` is the stack after it."""
        # Whether a clause follows a noun is left to the next word.
        rules = [
            Rule(noun_phrase["proper"] * shares[word], word, follow["singular"])
            for word in LEXICON["proper"]
        ]
        for number, share in zip(
            NUMBERS, (1 - plural_probability, plural_probability), strict=True
        ):
            rules += [
                Rule(common * share * shares[word], word, (f"(RC {number})", *follow[number]))
                for word in LEXICON[f"noun {number}"]
            ]
        return rules

    def verbs(number: str, follow: Mapping[str, Stack], mass: float = 1.0) -> list[Rule]:
        return [
            Rule(verb[kind] / mass * shares[word], word, then)
            for kind, then in follow.items()
            for word in LEXICON[f"verb {kind} {number}"]
        ]

    inner = "gap" if gaps else "VP"
    gapped = noun_phrases({number: (f"{inner} {number}",) for number in NUMBERS})
    objects = noun_phrases(dict.fromkeys(NUMBERS, ()))
    rules = {
        "S": noun_phrases({number: (f"VP {number}",) for number in NUMBERS}),
        "object": objects,
        "(object)": [*_scaled(objects, object_probability), Rule(1 - object_probability, None)],
    }
    relative = noun_phrase["relative"] / common if common else 0.0
    for number in NUMBERS:
        any_verb = verbs(number, {"required": ("object",), "optional": ("(object)",), "none": ()})
        rules[f"(RC {number})"] = [
            Rule(relative, WHO, (f"who {number}",)),
            Rule(1 - relative, None),
        ]
        rules[f"who {number}"] = [
            *_scaled(any_verb, relative_clause["subject"]),
            *_scaled(gapped, relative_clause["object"]),
        ]
        rules[f"VP {number}"] = any_verb
        if gaps:
            # The head noun is the object, so these verbs can take one.
            taking = dict.fromkeys(("required", "optional") if transitive else (), ())
            rules[f"gap {number}"] = verbs(number, taking, transitive)
    return rules


def lexical_shares(weights: Mapping[str, float]) -> dict[str, float]:
    """Return the probability of each word given its class."""
    words_known = set(chain.from_iterable(LEXICON.values()))
    for word, weight in weights.items():
        if word not in words_known:
            raise ValueError(f"word_weights names {word!r}, which is not in the vocabulary")
        WEIGHT.check(f"the weight of {word!r}", weight)
    shares: dict[str, float] = {}
    for kind, words in LEXICON.items():
        total = sum(weights.get(word, 1.0) for word in words)
        if not total:
            raise ValueError(f"word_weights leave no word in the class {kind!r}")
        shares |= {word: weights.get(word, 1.0) / total for word in words}
    return shares


def _scaled(rules: Iterable[Rule], factor: float) -> list[Rule]:
    return [Rule(rule.probability * factor, rule.word, rule.then) for rule in rules]
