"""Train a model of sums until it is proved to be right at every length, and ask it. About half a minute on two cores."""

import longhand
from longhand import train

# The same as: python train.py addition --max_length 5 --output_dir outputs/sums
train.main(["addition", "--max_length", "5", "--output_dir", "outputs/sums"])
print(longhand.load("outputs/sums")(f"{'9' * 50}+1"))
