"""The pass in which each cell of a product's grid gets its labels."""
