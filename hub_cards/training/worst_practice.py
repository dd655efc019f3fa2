"""Practice of the worst problems of the trained sizes, which are searched at every validation."""

# Used by: trainer.py. Changed freely.

import numpy as np
from tqdm.auto import tqdm
from transformers import PreTrainedModel, TrainerCallback, TrainerState

from longhand.data.batches import FreshBatches
from longhand.data.machines.covering import Problems
from longhand.data.proofs.worst import KEPT, WorstSearch
from longhand.data.splits import make_generator
from longhand.data.tasks.task import Task
from longhand.hub_cards.training.arguments import Run

SIZES = 8
"""Sizes that a search goes through: the longest trained one, and others as training draws them."""

ROUNDS = 8
"""Rounds of the search in each of them, see `WorstSearch.go_on`."""

TRAINING_SPLIT = "train"


class PractiseWorst(TrainerCallback):
    """Search the trained sizes for the problems with the lowest leads at every validation, and practise these.

    A search has no memory: it follows from the weights, the step and the seed of the data. So a resumed run practises what
    it would have practised, and so does each of several processes.
    """

    def __init__(self, run: Run, batches: FreshBatches, number: int):
        """
        Args:
            number: how many problems are practised.
        """
        self.run, self.batches, self.number = run, batches, number

    def on_train_begin(self, args, state, control, model: PreTrainedModel | None = None, **kwargs):
        # A resumed run repeats the search of the step that was saved.
        if state.global_step:
            assert model is not None
            self._practise(model, state)

    def on_step_end(self, args, state, control, model: PreTrainedModel | None = None, **kwargs):
        # Nothing is trained after the last step.
        if state.global_step % args.eval_steps == 0 and state.global_step < state.max_steps:
            assert model is not None
            self._practise(model, state)

    def _practise(self, model: PreTrainedModel, state: TrainerState) -> None:
        found, leads = self.search(model, state.global_step)
        self.batches.practise_worst(found)
        if state.is_world_process_zero:
            wrong = int((leads <= 0).sum())
            tqdm.write(
                f"step {state.global_step:6d}  practises {len(leads):,} problems, {wrong:,} of them wrong, "
                f"lowest lead {leads[0]:.3f}"
            )

    def search(self, model: PreTrainedModel, step: int) -> tuple[list[Problems], np.ndarray]:
        """The problems of the trained sizes with the lowest leads, and these leads (count,)."""
        run = self.run
        is_training = model.training
        model.eval()
        try:
            searches = [
                search
                for trained, tested in zip(run.task.parts, run.task.for_evaluation.parts, strict=True)
                for search in self._search_part(model, trained, tested, step)
            ]
        finally:
            model.train(is_training)
        owner = np.repeat(range(len(searches)), [len(search.leads) for search in searches])
        leads = np.concatenate([search.leads for search in searches])
        lowest = np.argsort(leads, kind="stable")[: self.number]
        problems = []
        for search, count in zip(searches, np.bincount(owner[lowest], minlength=len(searches)), strict=True):
            if count:
                lengths = np.tile(np.array(search.operands), (count, 1))
                problems.append(Problems(search.task, search.digits[:count], lengths))
        return problems, leads[lowest]

    def _search_part(self, model: PreTrainedModel, trained: Task, tested: Task, step: int) -> list[WorstSearch]:
        data = self.run.data
        generator = make_generator(self.run.training.data_seed, "worst", trained.name, step)
        drawn = trained.sample_lengths(generator, SIZES - 1, data.min_length, data.max_length)
        sizes = {tuple(lengths[lengths > 0].tolist()) for lengths in (*trained.longest_lengths(data.max_length), *drawn)}
        searches = []
        for operands in sorted(sizes):
            search = WorstSearch(model, tested, operands, generator, max(KEPT, self.number), TRAINING_SPLIT)
            for _ in range(ROUNDS):
                search.go_on()
            searches.append(search)
        return searches
