"""Sequential machines: their columns, what is seen of them through a window, their tables, states and texts."""
