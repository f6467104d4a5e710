"""Logins that cost next to nothing, for clouds that live for a moment; a real one's take a quarter of a second each."""

from moorage.main.security import SecurityCompliance

ROUNDS_MIN = 4
CHEAP_LOGINS = SecurityCompliance(password_hash_rounds=ROUNDS_MIN)
CHEAP_LOGINS_SETTINGS = f"[security_compliance]\npassword_hash_rounds = {ROUNDS_MIN}\n\n"
