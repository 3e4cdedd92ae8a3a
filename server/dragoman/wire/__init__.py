"""Floor 2: what is on the wire. Bytes, strings and messages in, values out; nothing here does I/O."""
