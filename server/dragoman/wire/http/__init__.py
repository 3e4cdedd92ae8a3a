"""HTTP rules, routes, transcoding and event streams."""
