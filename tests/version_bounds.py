"""Install the oldest or the newest versions that pyproject.toml allows into a new environment, and use the package there.

python tests/version_bounds.py oldest
python tests/version_bounds.py newest --tests                  # also the plain tests
python tests/version_bounds.py newest --with torch==2.15.0     # also a version that the bounds exclude

`.ci/versions` runs it with each version of Python; it downloads some gigabytes.
"""

import argparse
import re
import subprocess
import sys
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

USE = """
import sys
from pathlib import Path

from longhand import eval as evaluation, train
from longhand.data import load_task_dataset
from longhand.hub_cards import push

place = Path(sys.argv[1])
run = place / "addition"
small = "--hidden_size 16 --intermediate_size 32 --batch_size 8 --max_length 3 --validation_lengths 3 --validation_samples 4"
small += " --test_lengths 4 --test_samples 4 --max_steps 4 --eval_steps 2 --until_certified False"
train.main(["addition", *small.split(), "--output_dir", str(run)])
for pictures in ("accuracy.png", "README.md", "results.jsonl"):
    assert (run / pictures).is_file(), pictures
train.main(["encoder-addition", *"--max_steps 2 --eval_steps 2 --until_certified False --test_samples 4".split(),
            "--output_dir", str(place / "encoder")])
evaluation.main([str(run), "--lengths", "2,3", "--num_samples", "4", "--attentions", "--output_dir", str(place / "maps")])
evaluation.main(["addition-tiny", "--certify", "--output_dir", str(place / "certified")])
evaluation.main(["addition", "--ask", "653+49"])
rows = load_task_dataset("addition", max_length=5, num_samples=20, cache_dir=str(place))
assert len(rows) == 20 and rows[0]["prompt"]
push.main(["model", str(run), "user/adder"])
push.main(["dataset", "addition", "user/sums", "--num_samples", "20", "--num_test_samples", "5"])
push.main(["metric", "user/exact_match_by_length"])
"""


def oldest(requirement: str) -> str:
    """The requirement with its lower bound as the only version, such as `torch==2.9` for `torch>=2.9,<3`."""
    name, bound = re.match(r"([\w-]+)>=([\w.]+)", requirement).groups()
    return f"{name}=={bound}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("end", choices=["oldest", "newest"])
    parser.add_argument("--with", dest="more", nargs="+", default=[], metavar="NAME==VERSION", help="take these versions")
    parser.add_argument("--tests", action="store_true", help="also run the plain tests")
    options = parser.parse_args()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = project["dependencies"]
    wanted = [oldest(one) for one in needed] if options.end == "oldest" else needed
    names = [one.partition("==")[0] for one in options.more]
    wanted = [*options.more, *(one for one in wanted if re.match(r"[\w-]+", one)[0] not in names)]
    with tempfile.TemporaryDirectory() as place:
        venv.create(Path(place, "venv"), with_pip=True)
        python = str(Path(place, "venv/bin/python"))
        subprocess.run([python, "-m", "pip", "install", "-q", "setuptools", *wanted], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", "-e", str(ROOT)], check=True)
        subprocess.run([python, "-m", "pip", "list"], check=True)
        subprocess.run([python, "-W", "error::DeprecationWarning:longhand", "-c", USE, place], cwd=place, check=True)
        if options.tests:
            subprocess.run([python, "-m", "pip", "install", "-q", *project["optional-dependencies"]["test"]], check=True)
            sys.exit(subprocess.run([python, "-m", "pytest"], cwd=ROOT).returncode)


if __name__ == "__main__":
    main()
