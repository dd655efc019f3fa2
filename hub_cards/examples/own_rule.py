"""A rule of your own becomes a proved model: the remainder of a number by 3. About half a minute on two cores."""

import longhand
from longhand import train

rule = "lambda n: n % 3"
# Longhand asks the rule, finds the machine behind it, trains a network, and checks every case that any number shows.
train.main(["columns", "--function", rule, "--name", "remainder_by_three", "--output_dir", "outputs/remainder_by_three"])
solver = longhand.load("outputs/remainder_by_three")
print(solver(["6", "10", "123456789012345678901234567891"]))
