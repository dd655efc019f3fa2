"""A text graph, as in GTLM: nodes see each other, by the edges between them, and what is written after them sees all."""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import longhand
from longhand.hub_cards.examples.graph_distances import count_edges

NODE, MARKED, LINK, ASK, FAR = 20, 21, 22, 23, 3  # a node is NODE or MARKED, a word of 10 to 19, LINK, the place of another


def text_graph(input_ids, attention_mask):
    """Relations are edges between the nodes of two tokens, 3 for more or no way; positions begin anew in each node."""
    steps, begins = torch.arange(input_ids.shape[1], device=input_ids.device), (input_ids == NODE) | (input_ids == MARKED)
    nodes, in_graph = (begins.cumsum(1) - 1).clamp(min=0), (input_ids == ASK).cumsum(1) == 0
    rows, places = (input_ids == LINK).nonzero(as_tuple=True)
    distances = count_edges(rows, nodes[rows, places], input_ids[rows, places + 1], nodes, FAR)
    both = in_graph.unsqueeze(1) & in_graph.unsqueeze(2)
    positions = steps - steps.where(begins | (input_ids == ASK), 0).cummax(1).values
    seen = (both | (steps <= steps.unsqueeze(1))).unsqueeze(1)
    return {"pair_map": distances.where(both, -1), "position_ids": positions, "attention_mask": seen}


def train(shuffled):
    """Return the share of 32 graphs, after 300 steps, where the word of the marked node's neighbour is written."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    base = LlamaForCausalLM(LlamaConfig(vocab_size=24, **sizes, bos_token_id=None, eos_token_id=None))
    model = longhand.with_structure(base, rule=text_graph, num_relations=4, share_layers=True, trainable="all")
    optimizer = torch.optim.AdamW(longhand.structure_parameters(model, learning_rate=3e-3))
    for _ in range(300):
        pairs, words, marked = torch.rand(32, 6).argsort(1), torch.randint(10, 20, (32, 6)), torch.randint(6, (32, 1))
        partners = torch.empty_like(pairs).scatter_(1, pairs, pairs.reshape(32, 3, 2).flip(2).flatten(1))
        texts = torch.stack([torch.full_like(words, NODE), words, torch.full_like(words, LINK), partners], 2).flatten(1)
        texts.scatter_(1, 4 * marked, MARKED)
        answers = words.gather(1, partners.gather(1, marked))
        ids, order = torch.cat([texts, torch.full_like(marked, ASK), answers], 1), torch.randperm(26)
        given = text_graph(ids, None)
        given["pair_map"] = given["pair_map"][:, order][:, :, order] if shuffled else given["pair_map"]
        logits = model(ids, **given).logits[:, -2]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits, answers[:, 0]).backward()
        optimizer.step()
    written = model.eval().generate(ids[:, :-1], max_new_tokens=1)[:, -1]  # by the rule
    return (logits.argmax(-1) if shuffled else written).eq(answers[:, 0]).float().mean()


if __name__ == "__main__":
    print(f"{train(False):.2f} of the words are right, {train(True):.2f} if distances are shuffled")
