"""The table of what is proved, refuted and sampled says what its rows say."""

from longhand.hub_cards.research.study_pages import describe_lengths, first_refuted, verdict_line

NONE = {"worst_tried": 64, "worst_problem": "1+2=", "worst_answer": None, "worst_right": None}
WRONG = {"worst_tried": 64, "worst_problem": "4+5=", "worst_answer": "8$", "worst_right": "9$"}


def test_a_range_holds_all_tested_lengths_in_it():
    assert describe_lengths({10, 20, 40}, {10, 20, 30, 40, 50}) == "10 to 20, 40"
    assert describe_lengths(set(), {1}) == ""


def test_each_length_stands_where_its_rows_put_it():
    rows = [
        {"length": 2, "verdict": "proved"},
        {"length": 3, "verdict": "open"},
        {"length": 4, "exact_match": 1.0, "worst_tried": None, "worst_answer": None},
        {"length": 5, "exact_match": 1.0, **NONE},
        {"length": 6, "exact_match": 1.0, **WRONG},
        {"length": 6, "exact_match": 1.0},
        {"length": 7, "verdict": "refuted", "problem": "7+7=", "answer": "1$", "right": "14$"},
        {"length": 9, "exact_match": 0.99},
    ]
    line = verdict_line("table", (1, 5), rows)
    assert (line["proved"], line["nothing wrong found"], line["wrong"]) == ("2, 4", "3, 5", "6 to 9")
    assert "`4+5=`" in line["a problem of the shortest"] and "`9$`" in line["a problem of the shortest"]


def test_the_shortest_refuted_length_names_its_problem_if_one_is_known():
    sampled, searched = {"length": 6, "exact_match": 0.5}, {"length": 6, "exact_match": 0.5, **WRONG}
    assert first_refuted([sampled, searched]) is searched
    assert first_refuted([{"length": 9, "exact_match": 1.0, **NONE}]) is None
    assert "drawn" in verdict_line("table", (1, 5), [sampled])["a problem of the shortest"]
