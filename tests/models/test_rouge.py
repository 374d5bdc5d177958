import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eris.models.rouge import rouge1
from eris.models.stemmer import stem

TEXT = """
caresses ponies ties caress cats feed agreed plastered bled motoring sing conflated troubled sized hopping tanned
falling hissing fizzed failing filing happy sky skies relational conditional rational valenci hesitanci digitizer
conformabli radicalli differentli vileli analogousli vietnamization predication operator feudalism decisiveness
hopefulness callousness formaliti sensitiviti sensibiliti triplicate formative formalize electriciti electrical
hopeful goodness revival allowance inference airliner gyroscopic adjustable defensible irritant replacement
adjustment dependent adoption homologou communism activate angulariti homologous effective bowdlerize probate rate
cease controll roll dying lying tied died dies news innings proceed succeed generously apologies geology
archaeological fully faithfully really totally flies flied tries cried by say enjoy toys yes eye us is as at it ox
oily ease agree knightly
"""
WORDS = TEXT.split()


@pytest.mark.parametrize(
    ("candidate", "reference", "expected"),
    [
        ("the cat sat", "the cat sat", 1.0),
        ("the cat", "dogs run", 0.0),
        ("", "something", 0.0),
        ("", "", 0.0),
        ("cats cats cats", "cat", 0.5),
        ("The POLICE, hunting!", "police hunt", 0.8),
    ],
)
def test_by_hand(candidate, reference, expected):
    assert rouge1(candidate, reference) == pytest.approx(expected)


def reference_scorer():
    scorer = pytest.importorskip("rouge_score.rouge_scorer")
    return scorer.RougeScorer(["rouge1"], use_stemmer=True)


def test_every_rule_of_the_stemmer_against_the_reference_library():
    porter = pytest.importorskip("nltk.stem.porter").PorterStemmer()
    assert {word: stem(word) for word in WORDS} == {word: porter.stem(word) for word in WORDS}


@given(st.lists(st.sampled_from([*WORDS, "don't", "é", "--", "U.S.", "42nd"]), max_size=30), st.data())
@settings(max_examples=150, deadline=None)
def test_against_the_reference_library(words, data):
    other = data.draw(st.lists(st.sampled_from([*WORDS, *words, "don't", "42nd"]), max_size=30))
    mine, theirs = " ".join(words), " ".join(other)
    assert rouge1(mine, theirs) == pytest.approx(reference_scorer().score(theirs, mine)["rouge1"].fmeasure)
