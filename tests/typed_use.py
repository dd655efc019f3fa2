"""A user's code for `.ci/types`, where an unused `type: ignore` is an error: mypy must find each of these mistakes."""

import longhand
from longhand.data import load_task_dataset

where: str = longhand.zoo("addition")
longhand.zoo(3)  # type: ignore[arg-type]
load_task_dataset("addition", max_length="30", num_samples=10)  # type: ignore[arg-type]
nothing = longhand.nothing  # type: ignore[attr-defined]
