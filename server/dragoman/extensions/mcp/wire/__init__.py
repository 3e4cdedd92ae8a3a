"""Codecs of the Model Context Protocol (MCP), without I/O: agents as tools, tasks as results and task handles.

Revision 2026-07-28 with the extension `io.modelcontextprotocol/tasks` (SEP-2663), and the revisions with a handshake
back to 2025-03-26.
"""
