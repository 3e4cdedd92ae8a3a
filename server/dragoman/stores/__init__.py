"""Floor 3: stores of tasks, one folder each. They use `shared`, and never each other."""
