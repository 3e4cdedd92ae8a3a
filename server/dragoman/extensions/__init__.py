"""Extensions of the core and its adapters. Each brings libraries of its own and may be absent."""
