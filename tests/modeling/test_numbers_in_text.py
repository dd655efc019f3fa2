"""Numbers in ordinary text: which tokens the rule relates, by which tokenizers, and a model that writes sums by it."""

import re

import pytest
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

import longhand
from longhand.modeling.numbers_in_text import COPIED, ITSELF, NEXT, SAME, NumbersInText
from longhand.modeling.structure_rules import STRUCTURE_RULES, load_rule
from longhand.modeling.structured_models import SHIPPED_RULES

MARKER, SEPARATOR, END = ":", "=", "."
WORDS = ["in", "room", ",", "add", "and", "what", "is", "the", "of", "to", "?", "books"]
VOCABULARY = {text: token for token, text in enumerate([*"0123456789", MARKER, SEPARATOR, END, *WORDS])}
RULE = NumbersInText(range(10), (VOCABULARY[MARKER],), VOCABULARY[SEPARATOR], spread=1)


def tokens_of(*texts):
    """Token ids of texts of equally many tokens."""
    return torch.tensor([[VOCABULARY[word] for word in re.findall(r"\d|\w+|\S", text)] for text in texts])


def said_of(text, rule=RULE):
    """What the rule says of one text, with its tokens."""
    ids = tokens_of(text)
    said = rule(ids, torch.ones_like(ids))
    return re.findall(r"\d|\w+|\S", text), {name: part[0] for name, part in said.items()}


def test_the_docstring_draws_the_ids():
    lines = NumbersInText.__doc__.splitlines()
    tokens, ids = (next(line for line in lines if line.split()[:1] == [name]).split()[1:] for name in ("tokens", "ids"))
    words, said = said_of(" ".join(tokens))
    assert words == tokens and said["position_ids"].tolist() == [int(number) for number in ids]


def related(text, query, rule=RULE):
    """The tokens that the query is related to, with their places in the text, by relation."""
    _, said = said_of(text, rule)
    row = said["pair_map"][query]
    return {number: (row == number).nonzero().flatten().tolist() for number in row.unique().tolist() if number >= 0}


def test_what_asks_is_related_to_the_digits_of_its_places():
    text = "in 7 add 653 and 49 : 207=702 ."
    # Columns 1, 3 to 5, 7 and 8 are digits of the question, 9 the marker, 10 to 12 the answer, 13 the separator.
    assert related(text, 9) == {NEXT: [1, 5, 8]}
    assert related(text, 10) == {SAME: [1, 5, 8], NEXT: [4, 7], ITSELF: [10]}
    assert related(text, 11) == {SAME: [4, 7], NEXT: [3], ITSELF: [11]}
    assert related(text, 12) == {SAME: [3], ITSELF: [12]}
    assert [related(text, query) for query in (13, 14, 15, 16)] == [{COPIED: [12]}, {COPIED: [11]}, {COPIED: [10]}, {}]
    assert related(text, 4) == {COPIED + 1: [2], COPIED + 3: [0]} and related(text, 2) == {}


def test_a_factor_of_one_digit_is_seen_in_every_place():
    rule = NumbersInText(range(10), RULE.marker, RULE.separator, spread=1, everywhere=True)
    text, last = "in 7 add 653 and 4 : 2162=2612 .", COPIED + 1 + rule.words_before
    assert rule.num_relations == last + 1
    # Columns 1 and 7 are numbers of one digit, 8 is the marker.
    assert related(text, 8, rule) == {NEXT: [1, 5, 7]}
    assert related(text, 9, rule) == {SAME: [1, 5, 7], NEXT: [4], ITSELF: [9]}
    assert related(text, 10, rule) == {SAME: [4], NEXT: [3], ITSELF: [10], last: [1, 7]}
    assert related(text, 12, rule) == {ITSELF: [12], last: [1, 7]}
    assert [related(text, query, rule) for query in (13, 17)] == [{COPIED: [12]}, {}]
    ids = said_of(text, rule)[1]["position_ids"]
    assert ids[[0, 1, 2, 6, 7]].tolist() == [0, 1, 2, 4, 5]
    longhand.check_rule(rule, tokens_of(text), prompt=9)


def test_who_sees_whom():
    text = "in 7 add 653 and 49 : 207=702 ."
    words, said = said_of(text)
    sees, placed = said["attention_mask"][0], [word.isdigit() or word in (MARKER, SEPARATOR) for word in words]
    for query in range(len(words)):
        asked = [key for keys in related(text, query).values() for key in keys]
        expected = [key for key in range(query + 1) if not placed[key] or key == query or key in asked]
        assert sees[query].nonzero().flatten().tolist() == expected


def test_the_digits_that_are_asked_for_stand_one_place_behind():
    for text in ("add 653 and 49 : 207=702 .", "12345678 and 9 : 78654321=12345687"):
        _, said = said_of(text)
        ids = said["position_ids"]
        for query, key in (said["pair_map"] == NEXT).nonzero().tolist() + (said["pair_map"] == COPIED).nonzero().tolist():
            assert ids[query] - ids[key] == 1


def test_no_token_tells_how_long_numbers_are():
    """Related tokens are at one distance, whatever the place, and all numbers have the same ids to choose from."""
    distances, used = set(), {}
    for digits in (1, 2, 5, 40):
        for question in range(150):
            first, second = (10 ** (digits - 1) + question * factor for factor in (1, 7))
            total = str(first + second)
            text = f"in {question % 9} add {first % 10**digits} and {second % 10**digits} : {total[::-1]}={total} ."
            words, said = said_of(text, NumbersInText(range(10), RULE.marker, RULE.separator, spread=60))
            ids, relations = said["position_ids"], said["pair_map"]
            word_ids = {int(ids[place]) for place, word in enumerate(words[: words.index(MARKER)]) if not word.isdigit()}
            for query, key in said["attention_mask"][0].nonzero().tolist():
                if ids[query] > max(word_ids) and int(ids[key]) not in word_ids and query < len(words) - 1:
                    relation = int(relations[query, key]) if key != query else ITSELF
                    distances.add((relation, int(ids[query] - ids[key])))
            used.setdefault(digits, set()).update(ids.tolist())
    assert distances == {(SAME, 0), (NEXT, 1), (ITSELF, 0), (COPIED, 1)}
    assert used[40] <= used[1] | used[2] | used[5], "no id is new to a model that was trained on short numbers"


@pytest.mark.parametrize("text", ["in room 7 , add 653 and 49", "in the room :", "in the room : 12 books", "653"])
def test_a_text_without_a_question_about_numbers_is_left_as_it_is(text):
    words, said = said_of(text)
    assert said["position_ids"].tolist() == [*range(len(words))]
    assert torch.equal(said["attention_mask"][0], torch.ones(len(words), len(words)).tril().bool())
    assert (said["pair_map"] < 0).all()


def test_questions_of_a_conversation_have_answers_of_their_own():
    first, second = "add 12 and 34 : 64=46 .", "and 5 to 678 : 386=683 ."
    _, said = said_of(first + second)
    begin = len(re.findall(r"\d|\w+|\S", first))
    pair_map = said["pair_map"]
    before = pair_map[begin:, :begin]
    assert (before[before >= 0] > COPIED).all(), "of the first question, only words have a relation to the second"
    _, alone = said_of(second)
    asked = alone["pair_map"].clone()
    near = (asked > COPIED) | (pair_map[begin:, begin:] > COPIED)
    assert torch.equal(pair_map[begin:, begin:][~near], asked[~near])
    _, before_the_second = said_of(first)
    assert torch.equal(said["position_ids"][:begin], before_the_second["position_ids"]), "a further question moves no ids"
    assert torch.equal(pair_map[:begin, :begin], before_the_second["pair_map"])


@pytest.mark.parametrize("spread", [1, 30])
@pytest.mark.parametrize("separator", [None, VOCABULARY[SEPARATOR]])
@pytest.mark.parametrize("parts", [("pair_map", "attention_mask", "position_ids"), ("pair_map",), ("attention_mask",)])
def test_the_rule_does_not_look_ahead_of_the_question(spread, separator, parts):
    rule = NumbersInText(range(10), (VOCABULARY[MARKER],), separator, spread=spread, parts=parts)
    texts = ["in 7 add 653 and 49 : 207=702 . in 5", "add 1 to 99999 : 000001 = 1000", "in the room : 1 room is"]
    for text in texts:
        ids = tokens_of(text)
        marker = ids[0].tolist().index(VOCABULARY[MARKER])
        longhand.check_rule(rule, ids, prompt=marker + 1)
    with pytest.raises(ValueError, match="looks ahead"):
        longhand.check_rule(rule, tokens_of(texts[0]))


@pytest.mark.parametrize("text", ["in 7 add 653 and 49 : 207=702 .", "653 and 4 : 7", "7 : 7", "in the room :"])
def test_padding_on_either_side_changes_nothing(text):
    ids = tokens_of(text)
    tokens = ids.shape[1]
    whole = RULE(ids, torch.ones_like(ids))
    for left, right in ((3, 0), (0, 4), (2, 1)):
        for padding in (VOCABULARY[MARKER], VOCABULARY[END], 7):
            padded = torch.nn.functional.pad(ids, (left, right), value=padding)
            mask = torch.nn.functional.pad(torch.ones_like(ids), (left, right))
            said = RULE(padded, mask)
            own = slice(left, left + tokens)
            assert torch.equal(said["position_ids"][:, own], whole["position_ids"])
            for name in ("pair_map", "attention_mask"):
                part = said[name][..., own, :]
                assert torch.equal(part[..., own], whole[name])
                hidden = torch.cat([part[..., :left], part[..., left + tokens :]], dim=-1)
                assert (hidden == (-1 if name == "pair_map" else 0)).all()


def test_rows_of_a_batch_are_read_alone():
    texts = ["in 7 add 653 and 49 : 207 .", "in room add 5 and 4 , , , , , : 9 ."]
    ids = tokens_of(*texts)
    together = RULE(ids, torch.ones_like(ids))
    for row in range(2):
        alone = RULE(ids[row : row + 1], torch.ones(1, ids.shape[1]))
        assert all(torch.equal(alone[name], part[row : row + 1]) for name, part in together.items())


def test_some_queries_are_asked_for_alone():
    ids = tokens_of("in 7 add 653 and 49 : 207=702 . in 5")
    whole = RULE(ids, torch.ones_like(ids))
    for queries in (1, 4, ids.shape[1]):
        some = RULE(ids, torch.ones_like(ids), queries=queries)
        assert torch.equal(some["position_ids"], whole["position_ids"])
        assert all(torch.equal(some[name], whole[name][..., -queries:, :]) for name in ("pair_map", "attention_mask"))


@pytest.mark.parametrize("spread", [1, 200])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_generate_is_a_loop_of_forward_passes(spread, implementation):
    """Rows of different lengths, with padding on the left."""
    rule = NumbersInText(range(10), RULE.marker, RULE.separator, spread=spread)
    torch.manual_seed(0)
    sizes = {"vocab_size": len(VOCABULARY), "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    config = LlamaConfig(**sizes, num_attention_heads=4, initializer_range=0.3, attn_implementation=implementation)
    model = longhand.with_structure(LlamaForCausalLM(config).eval(), rule=rule)
    torch.nn.init.normal_(model.structure.table)
    texts = ["in 7 add 653 and 49 :", "add 12 and 3 :"]
    # With a marker, what was written before it would be a question.
    options = {"max_new_tokens": 9, "do_sample": False, "eos_token_id": None, "suppress_tokens": [*RULE.marker]}
    written = []
    for text in texts:
        ids = tokens_of(text)
        for _ in range(options["max_new_tokens"]):
            with torch.no_grad():
                logits = model(ids, use_cache=False).logits[:, -1:]
            logits[..., [*RULE.marker]] = -torch.inf
            ids = torch.cat([ids, logits.argmax(-1)], dim=1)
        prompt = tokens_of(text)
        written.append(ids[0, prompt.shape[1] :].tolist())
        assert torch.equal(model.generate(prompt, **options), ids)
    prompts = [tokens_of(text)[0].tolist() for text in texts]
    longest = max(map(len, prompts))
    padded = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    for use_cache in (True, False):
        together = model.generate(padded, attention_mask=mask, use_cache=use_cache, **options)
        assert together[:, longest:].tolist() == written
    assert len({*map(tuple, written)}) == 2
    for chosen in ({"num_beams": 3}, {"do_sample": True}):
        found = []
        for use_cache in (True, False):
            torch.manual_seed(0)
            found.append(model.generate(padded, attention_mask=mask, use_cache=use_cache, **{**options, **chosen}))
        assert torch.equal(*found), chosen


def byte_tokenizer(splits, lines=("2026 20653 12 1984 x7 07", "20653")):
    """A byte-level BPE tokenizer, such as GPT-2's, that learned to join what its splits leave together."""
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not splits)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*splits, byte_level])
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<end>", "<answer>", "<|im_start|>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=special, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([*lines] * 20, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", name_or_path="own/model")


def split(pattern):
    return pre_tokenizers.Split(Regex(pattern), "isolated")


def words_tokenizer(*splits):
    """A tokenizer of whole words."""
    tokenizer = Tokenizer(models.WordLevel({**VOCABULARY, "<unknown>": len(VOCABULARY)}, unk_token="<unknown>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), *splits])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unknown>", name_or_path="own/words")


SINGLE = {
    "digits": lambda: byte_tokenizer([pre_tokenizers.Digits(individual_digits=True)]),
    "Qwen2's pattern": lambda: byte_tokenizer([split(r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+")]),
    "words": lambda: words_tokenizer(pre_tokenizers.Digits(individual_digits=True)),
}
JOINED = {
    "GPT-2's pattern": lambda: byte_tokenizer([]),
    "Llama 3's pattern": lambda: byte_tokenizer([split(r" ?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+|\s+")]),
    "numbers together": lambda: byte_tokenizer([pre_tokenizers.Digits(individual_digits=False)]),
    "whole words": lambda: words_tokenizer(),
}


@pytest.mark.parametrize("name", SINGLE)
def test_tokenizers_with_a_token_for_each_digit_are_taken(name):
    tokenizer = SINGLE[name]()
    marker = " books " if name == "words" else "<answer>"
    rule = longhand.numbers_in_text(tokenizer, marker=marker, separator="=")
    ids = torch.tensor([tokenizer(f"add 653 and 49{marker}207=702", add_special_tokens=False)["input_ids"]])
    pair_map = rule(ids, torch.ones_like(ids))["pair_map"]
    counts = [int((pair_map == number).sum()) for number in (SAME, NEXT, ITSELF, COPIED)]
    # Ones are asked for twice and seen twice, tens too, hundreds once.
    assert counts == [5, 5, 3, 3]


@pytest.mark.parametrize("name", JOINED)
def test_tokenizers_that_join_digits_are_refused_by_name(name):
    tokenizer = JOINED[name]()
    with pytest.raises(ValueError, match=f"{tokenizer.name_or_path} joins them") as refusal:
        longhand.numbers_in_text(tokenizer, marker=":")
    assert "\n" not in str(refusal.value)


CHAT = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_chat_template_says_where_an_answer_begins():
    tokenizer = SINGLE["digits"]()
    with pytest.raises(ValueError, match="no chat template"):
        longhand.numbers_in_text(tokenizer)
    tokenizer.chat_template = CHAT
    rule = longhand.numbers_in_text(tokenizer)
    messages = [{"role": "user", "content": "add 653 and 49"}, {"role": "assistant", "content": "207"}]
    prompt = tokenizer.apply_chat_template(messages[:1], add_generation_prompt=True, return_dict=True, return_tensors="pt")
    pair_map = rule(prompt["input_ids"], prompt["attention_mask"])["pair_map"]
    assert tokenizer.decode(rule.marker) == "<|im_start|>assistant\n" and int((pair_map[0, -1] == NEXT).sum()) == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"marker": "201"}, "marker"),
        ({"marker": ""}, "marker must"),
        ({"marker": "<answer>", "separator": "<answer><end>"}, "one token"),
        ({"marker": "<answer>", "separator": "1"}, "other ones"),
        ({"marker": "<answer>", "spread": 0}, "spread"),
        ({"marker": "<answer>", "words_before": -1}, "words_before"),
        ({"marker": "<answer>", "parts": ["pair_maps"]}, "parts"),
    ],
    ids=str,
)
def test_what_is_no_rule_of_a_tokenizer_is_refused(arguments, reason):
    with pytest.raises(ValueError, match=reason):
        longhand.numbers_in_text(SINGLE["digits"](), **arguments)


def test_only_fast_tokenizers_are_read():
    with pytest.raises(ValueError, match="fast tokenizer"):
        longhand.numbers_in_text(object(), marker=":")


def test_every_rule_that_ships_is_tested_here():
    shipped = {rule for rule in STRUCTURE_RULES.values() if rule.__module__.startswith("longhand.modeling")}
    assert shipped == {NumbersInText} == {*SHIPPED_RULES}


def test_a_rule_that_was_saved_with_other_arguments_is_refused_in_a_line():
    with pytest.raises(ValueError, match="other arguments") as refusal:
        load_rule({"name": "NumbersInText", "arguments": {"digits": [1], "top": 200}}, "folder", False, {})
    assert "\n" not in str(refusal.value)
