"""The prover of lengths as all others use it: the bound reads weights by the names that they have in files."""

from transformers import PreTrainedModel

from longhand.data.proofs.lengths import up_to_length
from longhand.data.tasks.task import Task
from longhand.modeling.stored_names import read_as_stored


class LengthProver(up_to_length.LengthProver):
    """A model and a task, for which lengths are proved, see `up_to_length.LengthProver`.

    What was proved is bound to the bytes of the bound's code, so that code goes on reading the names of files where a
    parameter of the model has another name now.
    """

    def __init__(self, model: PreTrainedModel, task: Task):
        super().__init__(read_as_stored(model), task)
