"""Formulas of test suites: against Python's own operators, and values worked out by hand."""

import re

import numpy as np
import pytest

from esnlm.evaluation.syntaxgym.formulas import Formula, FormulaError

#: As the suites of Hu et al. (2020) write them: spaces, hyphens in names, brackets in brackets.
PUBLISHED = [
    "[ (6;%plaus%) + (7;%plaus%) ] < [ (6;%implaus%) + (7;%implaus%) ]",
    "[(6;%np_mismatch%)-(6;%np_match%)]+[[(5;%vp_mismatch%)+(6;%vp_mismatch%)]-"
    "[(5;%vp_match%)+(6;%vp_match%)]]>0",
    "[(6;%what_no-gap%)>(6;%that_no-gap%)] & [(7;%what_gap%)<(7;%that_gap%)]",
    "[(5;%reduced_ambig%) > (5;%unreduced_ambig%)] & [(5;%reduced_ambig%) > (5;%reduced_unambig%)]"
    " & [[(5;%reduced_ambig%) - (5;%unreduced_ambig%)] > [(5;%reduced_unambig%) -"
    " (5;%unreduced_unambig%)]]",
    "(5;%nn_ambig%)>(5;%nn_unambig%)",
    "(1;%a%) - (2;%a%) > -0.5 & -(1;%b%) + +[(2;%b%) - -.25e1] > 1e-1",
    "(1;%a%) - (2;%a%) - (3;%a%) > 0.5 | (1;%b%) < 2 & [(2;%b%) > 1 | (3;%b%) > 1]",
]


@pytest.mark.parametrize("text", PUBLISHED)
def test_formulas_are_what_python_makes_of_them(text: str):
    formula = Formula(text)
    rng = np.random.default_rng(0)
    bits = {region: rng.integers(0, 384, 50) / 128 for region in sorted(formula.regions)}
    holds = formula.holds(bits)
    python = text.translate(str.maketrans("[]", "()")).replace("&", " and ").replace("|", " or ")
    for item in range(50):

        def value(match: re.Match[str], item: int = item) -> str:
            return str(bits[int(match[1]), match[2]][item])

        assert holds[item] == eval(re.sub(r"\((\d+);%([\w-]+)%\)", value, python))
    assert 0 < holds.sum() < 50


def test_all_regions_of_a_condition_are_summed():
    bits = {
        (1, "a"): np.array([1.0, 1]),
        (2, "a"): np.array([2.0, 0]),
        (1, "b"): np.array([2.0, 2]),
    }
    assert Formula("(*;%a%) > (*;%b%)").holds(bits).tolist() == [True, False]
    assert Formula("(*;%a%) > (1;%b%)").regions == {(0, "a"), (1, "b")}


def test_the_last_digits_of_an_arithmetic_decide_nothing():
    bits = {(1, "a"): np.array([20.0, 20.0, 20.0]), (1, "b"): np.array([20.00001, 20.0005, 20.01])}
    assert Formula("(1;%a%) < (1;%b%)").holds(bits).tolist() == [False, True, True]
    assert Formula("(1;%b%) > (1;%a%)").holds(bits).tolist() == [False, True, True]
    assert Formula("(1;%a%) = (1;%b%)").holds(bits).tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(1;%a%)", "is a number, expected a condition"),
        ("", "expected a region, a number or a bracket, got the end"),
        ("(1;%a%) < ", "expected a region, a number or a bracket, got the end"),
        ("[(1;%a%) < (2;%a%)", "expected ']', got the end"),
        ("[(1;%a%) < (2;%a%))", r"expected ']', got '\)'"),
        ("(1;%a%) < (2;%a%) (3;%a%)", "expected an operator or the end, got"),
        ("(1;%a%) & (2;%a%)", "& stands between two conditions"),
        ("(1;%a%) + [(1;%a%) < 2] > 1", r"\+ stands between two numbers"),
        ("-[(1;%a%) < 2] > 1", "- stands before a number"),
        ("(1;%a%) < -", "expected a region, a number or a bracket, got the end"),
        ("(1;%a%) < 2 < 3", "< stands between two numbers"),
        ("__import__('os')", 'expected a region .* got "__import__'),
        ("(1;%a%) * 2 > 1", "expected a region .* got '\\* 2 > 1'"),
    ],
)
def test_what_is_no_formula_is_refused(text: str, message: str):
    with pytest.raises(FormulaError, match=message):
        Formula(text)
