"""Walk the tree: enter and leave stages, run the trials, survive what fails."""
