"""The bound of rounding of models with a window, and the formulas of their networks."""
