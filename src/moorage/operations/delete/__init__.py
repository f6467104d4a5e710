"""Delete, and soft delete with restore: accept_delete waits in line behind the operation that holds the server; delete
and soft_delete are the sagas.
"""
