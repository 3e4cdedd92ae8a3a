"""Access: identities, credentials, token claims and signing keys."""
