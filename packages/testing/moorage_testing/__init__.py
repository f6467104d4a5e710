"""Test tools that belong to the product: worlds, proofs, fault dials, real neighbours."""
