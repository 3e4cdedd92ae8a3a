"""HTTP rules, routes, transcoding, event streams and error bodies."""
