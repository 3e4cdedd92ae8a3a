"""Wire formats, layer 2: codecs, dialects, routes and error tables, without I/O."""
