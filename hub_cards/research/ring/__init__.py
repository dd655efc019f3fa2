"""Linear attention on a ring (paper 2, Sec. 5)."""
