"""For docs/how-to/security.md: writes an issuer's keys.json and prints a token signed with another key."""

import json
import time

import jwt
from cryptography.hazmat.primitives.asymmetric import ec

shown, another = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
public = jwt.algorithms.ECAlgorithm.to_jwk(shown.public_key(), as_dict=True)
with open("keys.json", "w") as file:
    json.dump({"keys": [{**public, "kid": "one"}]}, file)
claims = {"iss": "https://login.example.com", "aud": "dragoman", "sub": "alice", "exp": int(time.time()) + 3600}
print(jwt.encode(claims, another, "ES256", {"kid": "one"}))
