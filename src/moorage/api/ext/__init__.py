"""What only Moorage has, under `/v2.1/ext`: why a server is where it is, and the operations that brought it there."""
