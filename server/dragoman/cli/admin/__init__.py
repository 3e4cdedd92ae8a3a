"""Commands for operators: calls of dragoman.ops.v1, or of a store."""
