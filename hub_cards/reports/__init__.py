"""Reports: results files, tables and plots, and the documents rendered from them."""
