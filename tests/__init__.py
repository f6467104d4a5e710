"""The tests, by kind (see CONTRIBUTING.md). What several of them share is in `helpers`."""
