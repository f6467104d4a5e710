"""Test tools that belong to the product: small regions, proofs, faults, real services."""
