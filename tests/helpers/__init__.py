"""What several tests share; each module says for which tests it is."""
