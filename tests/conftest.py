"""What several test files share: one run of the main job."""

from pathlib import Path

import pytest

from longhand import train


@pytest.fixture(scope="session")
def main_job(tmp_path_factory) -> Path:
    """The finished folder of the default recipe, tested at fewer lengths than it names itself."""
    folder = tmp_path_factory.mktemp("runs") / "addition"
    train.main(["addition", "--test_lengths", "30", "200", "--test_samples", "50", "--output_dir", str(folder)])
    return folder
