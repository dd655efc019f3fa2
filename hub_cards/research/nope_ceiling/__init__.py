"""What one layer without positions can get right (paper 1, Prop. 5.2)."""
