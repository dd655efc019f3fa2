"""The encoders: PairwiseBert reads the answer off the tokens of its input, in one forward pass (paper 2)."""

import numpy as np
import pyarrow as pa
import torch
from transformers import AutoModelForTokenClassification

from longhand.data.collator import IGNORED
from longhand.data.columns import character_table, list_column, text_column
from longhand.data.digits import number_lengths
from longhand.data.families.family import Family
from longhand.data.formatting import LabelledTokens
from longhand.data.metrics import label_matches, label_tokens
from longhand.data.tokenization import build_encoder_tokenizer
from longhand.modeling import PairwiseBertForTokenClassification
from longhand.modeling.encoder_maps import GRID, virtual_indices
from longhand.modeling.transducer import table_of
from longhand.modeling.vocabulary import ENCODER_TOKENS, LABELS, PAD


def collate_labels(examples: LabelledTokens, generator: np.random.Generator | None = None) -> dict[str, torch.Tensor]:
    """A batch for `PairwiseBertForTokenClassification.forward`, which derives pair maps by itself.

    `input_ids`, `labels` and, if the examples have them, `states` are (count, columns). If rows differ in length, there is
    an `attention_mask`.
    """
    input_ids = torch.from_numpy(examples.tokens).long()
    batch = {"input_ids": input_ids, "labels": torch.from_numpy(examples.labels).long()}
    if examples.states is not None:
        batch["states"] = torch.from_numpy(examples.states).long()
    present = input_ids != PAD
    return batch if present.all() else batch | {"attention_mask": present.long()}


class Encoder(Family):
    name = "encoder"
    model_class = PairwiseBertForTokenClassification
    auto_class = AutoModelForTokenClassification
    tokens = ENCODER_TOKENS
    pipeline = "token-classification"
    count_matches = staticmethod(label_matches)
    right_tokens = staticmethod(label_tokens)

    def tokenizer(self, task):
        return build_encoder_tokenizer(task.tokens)

    def config_options(self, task, arguments=None):
        return {
            **self.format_options(task),
            "vocab_size": len(task.tokens),
            "transducer": table_of(task.transducer),
        }

    def check_config(self, task, config):
        settles = getattr(config, "label_states", False)
        labels = len(task.labels if settles else LABELS)
        if config.transducer != table_of(task.transducer):
            raise ValueError(f"was made for another step than that of the task {task.name!r}: its transducer is another")
        if (config.vocab_size, config.num_labels) != (len(task.tokens), labels):
            raise ValueError(
                f"has {config.vocab_size} tokens and {config.num_labels} classes, "
                f"but the task {task.name!r} has {len(task.tokens)} and {labels}"
            )
        if task.settling_map == GRID and not (settles and config.head_maps[0] == task.settling_map):
            raise ValueError(
                f"must have label_states True and pair_maps {task.settling_map!r} for the task {task.name!r}, "
                f"got {settles} and {', '.join(config.pair_maps)!r}"
            )
        if settles:
            task.check_settling()

    def check_inputs(self, task, model, batch):
        model.model.check_inputs(batch["input_ids"])
        # Other examples may have more text than this batch.
        model.model.check_tokens(int(virtual_indices(batch["input_ids"]).max()) + task.most_text)

    def check_generation(self, task):
        raise ValueError(f"a model of the task {task.name!r} is an encoder and generates nothing: leave out --decode")

    def check_certifiable(self, task, model):
        if not getattr(model.config, "label_states", False):
            raise ValueError(
                "an encoder does not write token by token, so the proof's induction does not apply, and its depth limits "
                "the cascades of carries; one with label_states has an induction over passes"
            )
        if (names := model.config.id2label) != dict(enumerate(task.labels)):
            raise ValueError(f"the labels of {task.name!r} are {task.labels!r}, but id2label names {names}")
        if (rule := model.config.head_maps[0]) != task.settling_map:
            raise ValueError(f"the cases of {task.name!r} are those of pair_maps {task.settling_map!r}, not {rule!r}")

    def window(self, model):
        return model.config.relation_range

    def columns(self, task, digits, lengths, generator, coupling=None):
        """Labels are the class of each token; the completion is the text of those that give the answer."""
        examples = task.write(digits, *task.layout(lengths), generator=generator)
        tokens, labels = examples.tokens, examples.labels
        present = tokens != PAD
        written = number_lengths(digits).astype(np.int32)
        characters = character_table(task.tokens)
        completion = text_column(list_column(*task.answer_labels(tokens, labels)), character_table(task.labels))
        return {
            "input_ids": list_column(tokens, present),
            "labels": list_column(labels, present),
            "prompt": text_column(list_column(tokens, present), characters),
            "completion": completion,
            "answer": pa.array(map(task.reader.read, completion.to_pylist()), pa.string()),
            "operand_lengths": list_column(written, np.ones((1, written.shape[1]), dtype=bool)),
        }

    def text_size(self, task, digits, lengths):
        return task.write(digits, *task.layout(lengths)).tokens.shape[1], 0

    def collator(self, config):
        return collate_labels

    def answer(self, task, model, tokenizer, question):
        """Answer from one forward pass."""
        prompt = task.prompt(question)
        task.check_answered(len(prompt))
        inputs = tokenizer(prompt, return_tensors="pt").to(model.device)
        with torch.inference_mode():
            predicted = model(**inputs).logits[0].argmax(-1).numpy(force=True)
        tokens = inputs["input_ids"].numpy(force=True)
        labels, kept = task.answer_labels(tokens, np.where(task.has_label(tokens[0]), predicted, IGNORED)[None])
        answer = labels[kept].tolist()
        if len(task.labels) - 1 in answer:
            raise ValueError("the model has no answer: its labels had not settled after one pass more than there are labels")
        return task.reader.read("".join(task.labels[label] for label in answer))


ENCODER = Encoder()
