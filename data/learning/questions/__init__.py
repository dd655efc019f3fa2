"""What a function is asked: its operands, the words of them that are tried, and how its answers are read."""
