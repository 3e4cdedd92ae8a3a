"""Load generation: clients for every binding, load kinds, and the load process."""
