"""Delete, and soft delete with restore: accept_delete queues behind whoever holds the server; delete and soft_delete
are the sagas.
"""
