"""Research: studies, theories, claims of the papers, and what makes the pages. No command of a user imports this room."""
