"""Run a command somewhere: on this machine, over SSH, inside a network namespace; move files; tmux sessions."""
