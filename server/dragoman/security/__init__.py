"""Authentication, TLS certificates, signing, encryption, and outbound HTTP."""
