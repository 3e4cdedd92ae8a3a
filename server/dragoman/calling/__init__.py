"""The A2A caller that the client library and upstream agents share."""
