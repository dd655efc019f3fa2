"""From a function, or from questions and answers, to a column task: the machine behind them is found, not written."""
