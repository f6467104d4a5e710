"""`make bench`: counts, CPU, rates and reads of the cloud that `make up` runs, in one table with budgets (docs/performance.md)."""
