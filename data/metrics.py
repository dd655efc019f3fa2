"""Right or wrong, token by token and as a whole, under teacher forcing."""

import torch

from longhand.data.collator import IGNORED


def response_matches(logits: torch.Tensor, labels: torch.LongTensor, answer_length: int | None = None) -> torch.Tensor:
    """Which responses a model gets right when every token is predicted from a correct prefix.

    All tokens right is the same event as greedy decoding giving exactly this response.

    Args:
        logits: (count, kept, vocabulary), for the last `kept` tokens.
        labels: (count, tokens), -100 where not supervised.
        answer_length: supervised tokens at the end that are the answer itself, where a scratchpad comes before it.

    Returns:
        (count, 3) int64: exact match (0 or 1), right tokens, supervised tokens; with `answer_length` a fourth column:
        whether the answer is right after a right scratchpad.
    """
    labels = labels[:, labels.shape[1] - logits.shape[1] + 1 :]
    supervised = labels != IGNORED
    right = (logits[:, :-1].argmax(-1) == labels) & supervised
    matches = torch.stack([(right == supervised).all(1), right.sum(1), supervised.sum(1)], dim=1)
    if answer_length is None:
        return matches
    in_answer = supervised.flip(1).cumsum(1).flip(1) <= answer_length
    return torch.cat([matches, (right | ~supervised | ~in_answer).all(1, keepdim=True)], dim=1)
