"""The tests: by kind (see CONTRIBUTING.md); what several of them share is in `helpers`."""
