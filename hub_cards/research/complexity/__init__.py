"""How sums are distributed over the lengths of cascades of carries (paper 2, Sec. 4)."""
